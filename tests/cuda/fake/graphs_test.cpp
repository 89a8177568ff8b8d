// Parts of a step that are captured as CUDA graphs (exec/captures) must have the bits of individual
// launches, no matter what changes from step to step. Also tests what happens after a capture or a
// launch fails, and how errors that appear late are named (exec/marks).
#include <dlfcn.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "engine/engine.h"
#include "io/file.h"
#include "run/train.h"
#include "support/dice.h"
#include "support/errors.h"
#include "support/fake_cuda.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr int64_t kSeq = 8;
// The number of micro-steps of a step, which is so large that the compiler repeats some of them.
constexpr int64_t kRepeated = 7;

// An environment variable that is set until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
};

// The settings of a step that may differ from step to step.
struct Step {
  // Rows of a micro-step.
  int64_t rows = 2 * kSeq;
  // The new learning rate, or 0 if it does not change.
  double lr = 0;
  // Calls forward, backward and step individually.
  bool in_pieces = false;
  // With individual calls, the rows of every other micro-step. 0 means that all micro-steps have
  // `rows`.
  int64_t odd_rows = 0;
};

// The results of a run.
struct Bits {
  // Bits, because values may be NaN.
  std::vector<uint64_t> losses, norms;
  // The reason why each step was skipped.
  std::vector<std::string> reasons;
  std::string hash;
  bool operator==(const Bits&) const = default;
};

enum class Traced { no, yes, no_longer };
struct Options {
  int64_t bound = 2 * kSeq;
  Traced trace = Traced::no;
  // Called after each step on rank 0.
  std::function<void(Engine&, size_t step)> behind;
  // Called before each instruction on rank 0.
  std::function<void(size_t step, size_t instr)> before = nullptr;
  // For each rank, the number of steps for which it has data.
  std::vector<size_t> data = {};
};

StepResult make_step(const Point& p, Engine& engine, const Step& step, size_t number) {
  const int64_t micros = p.leaves / p.world;
  const auto rank = static_cast<uint32_t>(engine.runtime().comm().rank());
  std::vector<int32_t> tokens(static_cast<size_t>(micros * step.rows)), targets(tokens.size());
  const RandomStream stream{3, static_cast<uint32_t>(number), rank, 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(stream.block(i)[0] % static_cast<uint32_t>(p.vocab));
    targets[i] = static_cast<int32_t>(stream.block(i)[1] % static_cast<uint32_t>(p.vocab));
  }
  if (step.lr > 0) engine.set("lr", step.lr);
  if (!step.in_pieces) {
    const auto numel = static_cast<int64_t>(tokens.size());
    InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, numel},
                          {targets.data(), DS_DTYPE_I32, numel}};
    return engine.train_batch(inputs);
  }
  for (int64_t m = 0; m < micros; ++m) {
    const int64_t rows = m % 2 == 1 && step.odd_rows > 0 ? step.odd_rows : step.rows;
    InputView inputs[] = {{tokens.data() + m * step.rows, DS_DTYPE_I32, rows},
                          {targets.data() + m * step.rows, DS_DTYPE_I32, rows}};
    engine.forward(inputs);
    engine.backward();
  }
  return engine.step();
}

Bits train(const Point& p, const std::vector<Step>& steps, const Options& options = {}) {
  std::vector<Bits> ranks(static_cast<size_t>(p.world));
  run_ranks(p.world, [&](Communicator& comm) {
    Config config = config_of(p);
    config.device = "cuda:0";
    size_t number = 0;
    EngineOptions given;
    given.trace = options.trace != Traced::no;
    given.programs.written_out = p.written_out;
    if (options.before && comm.rank() == 0)
      given.before_instr = [&](size_t instr) { options.before(number, instr); };
    Engine engine(config, make_tiny_gpt(1, 16, 2, p.vocab, kSeq, options.bound, p.dropout, p.tied),
                  comm, given);
    Bits& own = ranks[static_cast<size_t>(comm.rank())];
    if (options.trace == Traced::no_longer) {
      engine.runtime().trace()->turn(false);
      engine.runtime().trace()->take();
    }
    for (; number < steps.size(); ++number) {
      if (!options.data.empty() && number == options.data[static_cast<size_t>(comm.rank())])
        number += static_cast<size_t>(engine.join());
      const StepResult result = make_step(p, engine, steps[number], number);
      own.losses.push_back(std::bit_cast<uint64_t>(result.loss));
      own.norms.push_back(std::bit_cast<uint64_t>(result.grad_norm));
      own.reasons.push_back(result.reason);
      if (options.behind && comm.rank() == 0) options.behind(engine, number);
    }
    own.hash = state_hash(engine.store());
  });
  for (const Bits& rank : ranks)
    EXPECT_TRUE(rank.losses == ranks[0].losses || !options.data.empty());
  return ranks[0];
}

Point one_rank() {
  Point p;
  p.world = 1;
  p.leaves = 1;
  p.compute = DS_DTYPE_F32;
  return p;
}

// A log sink that collects the lines of this process as long as it lives.
class Lines {
 public:
  Lines() {
    set_log_sink([this](LogLevel, std::string_view line) {
      std::lock_guard lock(mutex_);
      text_ += std::string(line) + "\n";
    });
  }
  ~Lines() { set_log_sink({}); }
  std::string text() {
    flush_log();
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

class FakeCudaGraphs : public testing::Test {
 protected:
  void SetUp() override {
    if (!FakeCuda::find()) GTEST_SKIP() << "the plugin is not built";
    FakeCuda::find()->fail("");
    live_ = FakeCuda::find()->live();
  }
  void TearDown() override {
    if (!FakeCuda::find()) return;
    FakeCuda::find()->jitter(0);
    FakeCuda::find()->fail("");
    EXPECT_EQ(FakeCuda::find()->live(), live_) << "everything is given back";
  }
  static const FakeCuda& fake() { return *FakeCuda::find(); }
  static Bits plainly(const Point& p, const std::vector<Step>& steps, const Options& options = {}) {
    const Variable off("DS_CUDA_GRAPHS", "0");
    fake().fail("");
    Bits out = train(p, steps, options);
    EXPECT_EQ(fake().counts().graphs, 0);
    return out;
  }

 private:
  FakeCuda::Live live_;
};

struct RandomRun {
  Point point;
  std::vector<Step> steps;
};

RandomRun random_run(uint64_t seed) {
  Dice dice(seed, 51);
  RandomRun run;
  Point& p = run.point;
  p.stage = static_cast<int>(dice.below(4));
  p.world = dice.pick({1, 2, 4});
  p.tier = dice.pick({Tier::device, Tier::host, Tier::nvme});
  if (p.stage == 0) p.tier = Tier::device;
  p.written_out = dice.one_in(4) ? 1 : 16;
  if (p.written_out == 1) p.world = 1;
  p.leaves = p.world * (p.written_out == 1 ? kRepeated : dice.pick({1, 1, 2}));
  p.compute = dice.pick({DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16});
  p.optimizer = dice.pick({"AdamW", "SGD"});
  p.groups = dice.one_in(3);
  p.dropout = dice.pick({0.0, 0.1});
  p.clipping = dice.pick({0.0, 0.05});
  p.recompute = dice.one_in(3) ? "full" : "none";
  p.tied = dice.one_in(2);
  p.overlap = dice.one_in(2);
  p.bucket_size = dice.pick({int64_t{2000}, int64_t{500000000}});
  p.vocab += dice.below(9);
  for (int s = 0; s < 5; ++s) {
    Step& step = run.steps.emplace_back();
    if (dice.one_in(4)) step.rows = kSeq;
    if (dice.one_in(3)) step.lr = dice.pick({1e-3, 5e-3, 3e-2});
    step.in_pieces = dice.one_in(6);
  }
  return run;
}

TEST_F(FakeCudaGraphs, RandomStepsHaveTheBitsOfSingleLaunches) {
  fake().jitter(20);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const RandomRun run = random_run(seed);
    fake().fail("");
    const Bits with = train(run.point, run.steps);
    const FakeCuda::Counts counts = fake().counts();
    EXPECT_GT(counts.replays, 0) << run.point.name();
    EXPECT_LE(counts.graphs, counts.replays);
    EXPECT_TRUE(with == plainly(run.point, run.steps))
        << "seed " << seed << ": " << run.point.name();
  }
}

// A replay must use values that have changed since the capture, so a run with the change must
// differ from one without.
TEST_F(FakeCudaGraphs, AChangedRateAndExtentAreUsed) {
  Point p = one_rank();
  p.dropout = 0.1;
  std::vector<Step> steps(6), steady(5);
  steps[2].lr = 0.05;
  steps[3].rows = steps[4].rows = steps[5].rows = kSeq;
  steady[3].rows = steady[4].rows = kSeq;
  for (bool groups : {false, true}) {
    p.groups = groups;
    fake().fail("");
    const Bits changed = train(p, steps);
    EXPECT_GT(fake().counts().replays, 0);
    EXPECT_TRUE(changed == plainly(p, steps)) << "groups " << groups;
    const Bits as_before = train(p, steady);
    EXPECT_EQ(changed.losses[2], as_before.losses[2]) << "the rate acts only after its step";
    EXPECT_NE(changed.losses[3], as_before.losses[3]);
  }
}

// In each round of a repeated micro-step, dropout masks differ, gradients are added in a tree, and
// the extent may differ. Gathers end captured parts, so some parts lie within a forward or a
// backward.
TEST_F(FakeCudaGraphs, EachRoundUsesItsOwnValues) {
  Point p = one_rank();
  p.stage = 3;
  p.world = 2;
  p.leaves = p.world * kRepeated;
  p.dropout = 0.1;
  p.reproducible = true;
  p.written_out = 1;
  Options options;
  options.behind = [](Engine& engine, size_t) { EXPECT_GT(engine.program().repeat.rounds, 1); };
  for (bool in_pieces : {false, true}) {
    std::vector<Step> steps(5);
    for (Step& step : steps) step.in_pieces = in_pieces;
    for (size_t s : {3, 4}) steps[s].odd_rows = kSeq;
    fake().fail("");
    const Bits with = train(p, steps, options);
    EXPECT_GT(fake().counts().replays, 0);
    EXPECT_TRUE(with == plainly(p, steps)) << "in pieces " << in_pieces;
  }
}

// A rank without data runs other work, which is not captured. The graphs of other ranks, and of
// this rank's later steps, are kept.
TEST_F(FakeCudaGraphs, ARankWithoutDataCapturesNothing) {
  Point p = one_rank();
  p.stage = 2;
  p.world = 2;
  p.leaves = 4;
  const std::vector<Step> steps(8);
  Options options;
  options.data = {6, 3};
  Lines lines;
  fake().fail("");
  const Bits with = train(p, steps, options);
  EXPECT_EQ(lines.text(), "");
  EXPECT_TRUE(with == plainly(p, steps, options));
}

// The first step of an extent is launched individually, the second is captured, and later ones are
// replayed.
TEST_F(FakeCudaGraphs, TheSecondStepIsCapturedAndLaterOnesAreReplayed) {
  std::vector<FakeCuda::Counts> seen;
  Options options;
  options.behind = [&](Engine&, size_t) { seen.push_back(fake().counts()); };
  train(one_rank(), std::vector<Step>(4), options);
  EXPECT_EQ(seen[0].graphs, 0);
  EXPECT_GT(seen[1].graphs, 0);
  EXPECT_EQ(seen[3].graphs, seen[1].graphs);
  EXPECT_EQ(seen[3].replays, 3 * seen[1].graphs);
  const std::vector<FakeCuda::Counts> with = std::exchange(seen, {});
  plainly(one_rank(), std::vector<Step>(4), options);
  EXPECT_EQ(with[3].launches, seen[3].launches) << "those of graphs, too";
  EXPECT_LT(2 * (with[3].calls - with[2].calls), seen[3].calls - seen[2].calls) << "fewer calls";
}

// A host that calls forward, backward and step individually has the graphs of a host that calls
// train_batch.
TEST_F(FakeCudaGraphs, AStepInPiecesHasTheGraphsOfAWholeStep) {
  std::vector<FakeCuda::Counts> seen;
  Options options;
  options.behind = [&](Engine&, size_t) { seen.push_back(fake().counts()); };
  train(one_rank(), std::vector<Step>(4), options);
  const FakeCuda::Counts whole = std::exchange(seen, {}).back();
  fake().fail("");
  std::vector<Step> steps(4);
  for (Step& step : steps) step.in_pieces = true;
  train(one_rank(), steps, options);
  EXPECT_EQ(seen.back().graphs, whole.graphs);
  EXPECT_EQ(seen.back().replays, whole.replays);
}

// If there are more extents than may be kept, the graphs of the oldest extent are destroyed. They
// are captured again when this extent is used again.
TEST_F(FakeCudaGraphs, GraphsOfTheOldestExtentAreDestroyed) {
  Options options;
  options.bound = 10 * kSeq;
  std::vector<int64_t> live, graphs;
  options.behind = [&](Engine&, size_t) {
    live.push_back(fake().counts().live_graphs);
    graphs.push_back(fake().counts().graphs);
  };
  std::vector<Step> steps;
  for (int64_t sequences = 1; sequences <= 10; ++sequences) {
    if (sequences == 9) steps.push_back({kSeq});
    for (int again = 0; again < 3; ++again) steps.push_back({sequences * kSeq});
  }
  const size_t all = steps.size();
  for (int64_t sequences : {10, 1, 1, 2, 2}) steps.push_back({sequences * kSeq});
  train(one_rank(), steps, options);
  // All other graphs do not depend on the extent.
  const int64_t of_extent = live[5] - live[2];
  EXPECT_GT(of_extent, 0);
  EXPECT_EQ(live[8 * 3 - 1], live[2] + 7 * of_extent);
  EXPECT_EQ(live[all - 1], live[8 * 3 - 1]) << "no more than those of 8";
  EXPECT_EQ(graphs[all + 2], graphs[all - 1]) << "what was used later is kept";
  EXPECT_GT(graphs.back(), graphs[all + 2]) << "the second is made again";
}

// No graphs are used in traced steps, in a rerun that names a NaN, and with launches that block.
TEST_F(FakeCudaGraphs, AreNotUsedWhereInstructionsAreObserved) {
  Options traced;
  traced.trace = Traced::yes;
  train(one_rank(), std::vector<Step>(3), traced);
  EXPECT_EQ(fake().counts().graphs, 0);
  traced.trace = Traced::no_longer;
  traced.behind = [](Engine& engine, size_t) { EXPECT_EQ(engine.runtime().trace()->count(), 0U); };
  Point with_files = one_rank();
  with_files.stage = 2;
  with_files.tier = Tier::nvme;
  train(with_files, std::vector<Step>(3), traced);
  EXPECT_GT(fake().counts().graphs, 0);
  fake().fail("");
  {
    const Variable blocking("DS_CUDA_BLOCKING", "1");
    train(one_rank(), std::vector<Step>(3));
    EXPECT_EQ(fake().counts().graphs, 0);
  }
  std::vector<Step> steps(6);
  steps[3].lr = 1e36;
  const Bits with = train(one_rank(), steps), without = plainly(one_rank(), steps);
  EXPECT_EQ(with.reasons, without.reasons);
  EXPECT_NE(with.reasons[4], "") << "a step was skipped";
}

// `libds train` traces steps 1, 2 and 5 to 10.
TEST_F(FakeCudaGraphs, ARunUsesThemInStepsThatItDoesNotTrace) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {} of a text: {}\n", i, i * 7919 % 1000);
  write_file_atomic(folder / "text.txt", text);
  const Json config =
      Json::parse(fmt::format(R"({{"device": "cuda:0", "train_micro_batch_size_per_gpu": 2,
      "optimizer": {{"type": "AdamW"}}, "model": {{"family": "gpt", "layers": 1, "hidden": 16, "heads": 2}},
      "data": {{"paths": ["{}"]}},
      "run": {{"dir": "{}", "steps": 13, "sequence": 16, "sample_tokens": 0, "threads": 1}}}})",
                              folder / "text.txt", folder / "run"));
  std::vector<FakeCuda::Counts> seen(1);
  TrainOptions options;
  options.quiet = 2;
  options.progress = [&](const RunProgress&) {
    seen.push_back(fake().counts());
    return true;
  };
  ds::train(config, *create_communicator("self", {}), options);
  EXPECT_EQ(seen[3].graphs, 0) << "step 3 is the first of its extent";
  EXPECT_GT(seen[4].graphs, 0);
  EXPECT_EQ(seen[10].replays, seen[4].replays);
  EXPECT_EQ(seen[12].replays, 3 * seen[4].replays);
}

// If a capture fails, its work is launched individually, and each rank logs one warning.
TEST_F(FakeCudaGraphs, ACaptureThatFailsFallsBack) {
  Point p = one_rank();
  p.stage = 2;
  p.world = p.leaves = 2;
  p.tier = Tier::host;
  const std::vector<Step> steps(4);
  const Bits want = plainly(p, steps);
  fake().fail("");
  train(p, steps);
  const FakeCuda::Counts all = fake().counts();
  for (int64_t part = 0; part < 4; ++part) {
    for (const auto& [kind, count] :
         {std::pair{"capture", all.captured}, std::pair{"instantiate", all.graphs}}) {
      const std::string error =
          kind + (":" + std::to_string(std::max<int64_t>(1, count * part / 4)));
      Lines lines;
      fake().fail(error);
      EXPECT_TRUE(train(p, steps) == want) << error;
      EXPECT_LT(fake().counts().graphs, all.graphs) << error;
      expect_names(lines.text(), {"launches are no longer captured as graphs, because ",
                                  " could not be captured: device 'cuda:0'"});
    }
  }
}

TEST_F(FakeCudaGraphs, AReplayThatFailsPoisonsTheEngineAndNamesThePiece) {
  Point p = one_rank();
  p.stage = 3;
  fake().fail("");
  train(p, std::vector<Step>(4));
  const int64_t replays = fake().counts().replays;
  for (int64_t part = 0; part < 4; ++part) {
    const std::string error = "replay:" + std::to_string(std::max<int64_t>(1, replays * part / 4));
    fake().fail(error);
    const std::string text = message_of([&] { train(p, std::vector<Step>(4)); }, DS_ERROR_INTERNAL);
    expect_names(text, {"rank ", ", step ", "instruction ", " to instruction ", "device 'cuda:0'",
                        "unspecified launch failure"});
  }
}

// An error message, and the instruction intervals that it names.
struct Blamed {
  std::vector<std::pair<int64_t, int64_t>> intervals;
  std::string text;
  bool has(int64_t instr) const {
    return std::any_of(intervals.begin(), intervals.end(),
                       [&](const auto& in) { return in.first <= instr && instr <= in.second; });
  }
  bool names(int64_t instr) const {
    return std::count(intervals.begin(), intervals.end(), std::pair(instr, instr)) == 1;
  }
};
Blamed blamed(const Point& p, const std::vector<Step>& steps, int64_t launch) {
  FakeCuda::find()->fail("launch:" + std::to_string(launch));
  Blamed out;
  try {
    train(p, steps);
  } catch (const Error& error) {
    out.text = error.what();
  }
  const std::string word = "instruction ", to = " to ";
  for (size_t at = out.text.find(word); at != std::string::npos; at = out.text.find(word, at + 1)) {
    const int64_t number = std::atoll(out.text.c_str() + at + word.size());
    if (at >= to.size() && out.text.compare(at - to.size(), to.size(), to) == 0 &&
        !out.intervals.empty())
      out.intervals.back().second = number;
    else
      out.intervals.emplace_back(number, number);
  }
  return out;
}

// A run without an error finds the instruction of the K-th launch. If that launch fails in another
// run, the message must name an interval that contains this instruction. It may also name intervals
// of other queues whose submitted work has not ended.
TEST_F(FakeCudaGraphs, ALateErrorIsNamedByInterval) {
  const Point p = one_rank();
  const std::vector<Step> steps(4);
  // The number of launches before each instruction of the first step.
  std::vector<std::pair<int64_t, int64_t>> begins;
  Options options;
  options.before = [&](size_t step, size_t instr) {
    if (step == 0) begins.emplace_back(fake().counts().launches, static_cast<int64_t>(instr));
  };
  int64_t before_step = 0, of_step = 0;
  options.behind = [&](Engine&, size_t step) {
    if (step == 0) of_step = fake().counts().launches - begins.front().first;
    if (step == 2) before_step = fake().counts().launches;
  };
  plainly(p, steps, options);
  const auto truth = [&](int64_t launch_of_step) {
    int64_t instr = -1;
    for (const auto& [launches, number] : begins) {
      if (launches - begins.front().first < launch_of_step) instr = number;
    }
    return instr;
  };
  for (int64_t part = 0; part < 6; ++part) {
    const int64_t launch = 1 + of_step * part / 6;
    const int64_t want = truth(launch), in_first = begins.front().first + launch;
    // In the first step, work is launched individually.
    const Blamed late = blamed(p, steps, in_first);
    EXPECT_TRUE(late.names(want)) << want << ": " << late.text;
    const Blamed replayed = blamed(p, steps, before_step + launch);
    EXPECT_TRUE(replayed.has(want)) << want << ": " << replayed.text;
    const Variable blocking("DS_CUDA_BLOCKING", "1");
    const Blamed exactly = blamed(p, steps, before_step + launch);
    EXPECT_TRUE(exactly.names(want) && exactly.intervals.size() == 1)
        << want << ": " << exactly.text;
  }
}

TEST_F(FakeCudaGraphs, RangesAreVisibleToATool) {
  train(one_rank(), std::vector<Step>(3));
  void* tool = dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(tool, nullptr) << dlerror();
  const auto look_up = [&](auto* type, const char* name) {
    return reinterpret_cast<decltype(type)>(dlsym(tool, name));
  };
  EXPECT_GT(look_up(static_cast<int64_t (*)()>(nullptr), "fake_tool_begun")(), 0);
  EXPECT_EQ(look_up(static_cast<int (*)()>(nullptr), "fake_tool_depth")(), 0);
  const auto saw = look_up(static_cast<int (*)(const char*)>(nullptr), "fake_tool_saw");
  EXPECT_EQ(saw("adamw "), 1) << "an instruction";
  EXPECT_EQ(saw(" to "), 1) << "a graph";
  EXPECT_EQ(saw("none of ours"), 0);
}

}  // namespace
}  // namespace ds::test
