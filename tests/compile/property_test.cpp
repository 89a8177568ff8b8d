#include <fmt/core.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/certificate.h"
#include "compile/pipeline.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "engine/engine.h"
#include "support/random_run.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

// Random runs under random layouts must equal the same runs under the simplest layout, bit for bit.
// A run consists of a graph, an optimizer, types, the parameters that are frozen, thawed, written
// and evaluated between its steps, and the ranks that have no data in some steps. It is saved under
// one layout and continues under another. DS_PROPERTY_CASES sets the number of runs,
// DS_PROPERTY_FIRST the seed of the first one (`./run same-bits --draws`).
namespace ds::test {
namespace {

// The values of one graph input for the micro-steps of a call.
struct Input {
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
  std::vector<std::byte> bytes;

  template <typename T>
  void put(T x) {
    const auto* from = reinterpret_cast<const std::byte*>(&x);
    bytes.insert(bytes.end(), from, from + sizeof x);
    ++numel;
  }
};

// Draws the rows of one leaf, independently of the layout of ranks. Ids index the first parameter,
// which is the table.
void draw_rows(const RandomRun& run, size_t k, int step, int64_t leaf, Input& input) {
  const TensorType& type = run.graph.type(run.graph.inputs[k]);
  input.dtype = type.dtype == DS_DTYPE_F32 ? run.config.compute : type.dtype;
  RandomStream stream{run.seed, static_cast<uint32_t>(step), static_cast<uint32_t>(leaf),
                      static_cast<uint32_t>(k)};
  int64_t numel = type.shape.numel(run.rows[static_cast<size_t>(step)]);
  int64_t table = run.graph.type(run.graph.params[0].value).shape[0].extent;
  for (uint64_t e = 0; e < static_cast<uint64_t>(numel); ++e) {
    float number = static_cast<float>(normal_element(stream, e));
    if (input.dtype == DS_DTYPE_F32) input.put(number);
    if (input.dtype == DS_DTYPE_BF16) input.put(bf16(number));
    if (input.dtype == DS_DTYPE_F16) input.put(f16(number));
    const bool dropped = run.config.by_tokens() && k == 1 && (stream.block(e)[1] + leaf) % 3 == 0;
    if (input.dtype == DS_DTYPE_I32)
      input.put(dropped ? -100 : static_cast<int32_t>(stream.block(e)[0] % table));
  }
}

std::vector<Input> draw_inputs(const RandomRun& run, int step, int rank, int64_t first,
                               int64_t micros) {
  std::vector<Input> inputs(2);
  for (int64_t m = first; m < first + micros; ++m) {
    for (size_t k = 0; k < 2; ++k) draw_rows(run, k, step, m * run.world + rank, inputs[k]);
  }
  return inputs;
}

std::vector<InputView> views(const std::vector<Input>& inputs) {
  std::vector<InputView> out;
  for (const Input& in : inputs) out.push_back({in.bytes.data(), in.dtype, in.numel});
  return out;
}

// Everything that must not depend on the layout, with its name.
using Payload = std::vector<std::pair<std::string, std::vector<double>>>;

// One rank with an engine under one layout.
class Rank {
 public:
  Rank(const RandomRun& run, Communicator& comm, Payload& out) : run_(run), comm_(comm), out_(out) {
    EngineOptions options;
    options.threads = run.threads;
    options.chaos_seed = run.chaos;
    options.programs.written_out = run.written_out;
    engine_ = std::make_unique<Engine>(run.config, run.graph, comm, options);
  }

  Checkpoints& checkpoints() { return engine_->checkpoints(); }

  void events(int step) {
    for (const RunEvent& e : run_.events[static_cast<size_t>(step)]) {
      if (e.kind == RunEvent::Kind::evaluate) evaluate(step);
      if (e.kind == RunEvent::Kind::write) write(ParamId(e.params[0]), step);
      if (e.kind == RunEvent::Kind::freeze) freeze(e.params, true);
      if (e.kind == RunEvent::Kind::thaw) freeze(e.params, false);
    }
  }

  // Trains a step. If `watch` is set, checks that trained parameters change and frozen ones do not.
  void step(int step, bool watch) {
    const bool here = (run_.absent[static_cast<size_t>(step)] >> comm_.rank() & 1) == 0;
    std::vector<std::vector<float>> before;
    if (watch) before = masters();
    if (here) train(step);
    if (run_.absent[static_cast<size_t>(step)] != 0) engine_->join();
    const StepResult r = engine_->control().last();
    put(fmt::format("loss, norm, lr, scale of step {}", step),
        {r.loss, r.grad_norm, r.lr, r.loss_scale});
    if (watch) compare(before, step, r);
  }

  // Reads the whole state, although each rank holds only a part.
  void finish() {
    std::vector<std::string> kinds = engine_->store().state_kinds();
    kinds.insert(kinds.end(), {"param", "grad"});
    const auto params = static_cast<int32_t>(engine_->store().param_names().size());
    for (ParamId p(0); p.number() < params; ++p) {
      for (const std::string& kind : kinds) {
        if (kind == "grad" && engine_->trained().is_frozen(p)) continue;
        const std::vector<float> whole = engine_->store().read_tensor(p, kind);
        const std::string name = engine_->store().param_names()[p] + " " + kind;
        put(name, {whole.begin(), whole.end()});
        if (!own(kind)) check_part(p, kind, whole);
      }
    }
    evaluate(0);
  }

 private:
  const OptimizerConfig& optimizer() const { return run_.config.optimizer; }
  bool exchanges() const {
    return optimizer().compressed() || run_.config.gradient_compression.on();
  }
  // Returns whether ranks have different values: gradients that are not reduced, and the local
  // steps of 0/1 Adam.
  bool own(const std::string& kind) const {
    if (kind == "grad") return exchanges();
    return optimizer().type == "ZeroOneAdam" && (kind == "param" || kind == "exp_avg");
  }
  void put(std::string name, std::vector<double> values) {
    if (comm_.rank() == 0) out_.emplace_back(std::move(name), std::move(values));
  }
  std::vector<std::vector<float>> masters() {
    std::vector<std::vector<float>> out;
    for (size_t p = 0; p < engine_->store().param_names().size(); ++p)
      out.push_back(engine_->store().read_tensor(ParamId(p), "master"));
    return out;
  }

  void train(int step) {
    const int64_t micros = run_.config.accumulation;
    if (!run_.pieces) {
      engine_->train_batch(views(draw_inputs(run_, step, comm_.rank(), 0, micros)));
      return;
    }
    for (int64_t m = 0; m < micros; ++m) {
      engine_->forward(views(draw_inputs(run_, step, comm_.rank(), m, 1)));
      engine_->backward();
    }
    engine_->step();
  }

  // Freezes or thaws parameters. If this is refused, records the message, which is part of the
  // expected result. Refused are thawing a parameter that has no variance after the variances were
  // frozen, and freezing the last trained parameters.
  void freeze(const std::vector<int32_t>& params, bool frozen) {
    try {
      engine_->trained().freeze(params, frozen);
    } catch (const Error& error) {
      if (error.status() != DS_ERROR_STATE && error.status() != DS_ERROR_CONFIG) throw;
      put(error.what(), {});
    }
  }

  // Records the loss only if it does not depend on the number of ranks, because the mean over ranks
  // depends on the order of additions.
  void evaluate(int step) {
    const double loss = engine_->eval_batch(views(draw_inputs(run_, step, comm_.rank(), 0, 1)));
    if (!run_.config.reproducible) put("eval loss", {loss});
  }

  void write(ParamId param, int step) {
    std::vector<float> values = engine_->store().read_tensor(param, "master");
    const RandomStream stream{run_.seed, static_cast<uint32_t>(step), 77, 0};
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 0.1f * static_cast<float>(normal_element(stream, i));
    engine_->store().write_tensor(param, "master", values);
  }

  void check_part(ParamId param, const std::string& kind, const std::vector<float>& whole) {
    const auto [first, count] = engine_->store().local_range(param);
    const std::vector<float> part = engine_->store().read_local(param, kind);
    if (std::ssize(part) != count ||
        std::memcmp(part.data(), whole.data() + first, part.size() * sizeof(float)) != 0)
      raise(DS_ERROR_INTERNAL, "rank {} has another {} of {} than the others", comm_.rank(), kind,
            engine_->store().param_names()[param]);
  }

  // Checks that frozen parameters have not changed, and that trained ones have, at least by weight
  // decay.
  void compare(const std::vector<std::vector<float>>& before, int step, const StepResult& result) {
    const std::vector<std::vector<float>> after = masters();
    const bool moves = !result.skipped && optimizer().weight_decay > 0 &&
                       optimizer().masters == DS_DTYPE_F32 && optimizer().type != "ZeroOneAdam";
    for (size_t p = 0; p < before.size(); ++p) {
      const bool frozen = engine_->trained().is_frozen(ParamId(p)), same = before[p] == after[p];
      const bool some = std::any_of(before[p].begin(), before[p].end(),
                                    [](float x) { return std::abs(x) > 1e-3f; });
      if (frozen ? same : !same || !moves || !some) continue;
      raise(DS_ERROR_INTERNAL, "in step {} {} {}", step, engine_->store().param_names()[ParamId(p)],
            frozen ? "moves and is frozen" : "does not move");
    }
  }

  const RandomRun& run_;
  Communicator& comm_;
  Payload& out_;
  std::unique_ptr<Engine> engine_;
};

// Runs steps [first.step, last.step) under one layout, from one take-over to the next.
std::string run_leg(const RandomRun& run, const std::string& from, const TakeOver& first,
                    const TakeOver& last, const std::string& folder, Payload& out) {
  std::string saved;
  run_ranks(
      run.world,
      [&](Communicator& comm) {
        Payload mine;
        Rank rank(run, comm, mine);
        if (!from.empty()) rank.checkpoints().load(from);
        for (int s = first.step; s < last.step; ++s) {
          if (s > first.step || !first.behind) rank.events(s);
          rank.step(s, from.empty() && folder.empty());
        }
        if (last.behind) rank.events(last.step);
        std::string path;
        if (last.step == run.steps) {
          rank.finish();
        } else if (last.async) {
          rank.checkpoints().start_save(folder);
          path = rank.checkpoints().wait();
        } else {
          path = rank.checkpoints().save(folder);
        }
        if (comm.rank() != 0) return;
        out.insert(out.end(), mine.begin(), mine.end());
        saved = path;
      },
      run.by_callbacks ? "caller" : "threads");
  return saved;
}

Payload train(const RandomRun& run) {
  Payload out;
  run_leg(run, "", {}, {run.steps}, "", out);
  return out;
}

// Trains under these layouts in turn and returns the results.
Payload train(const std::vector<RandomRun>& layouts, const std::vector<TakeOver>& take_overs) {
  TempFolder folder;
  Payload out;
  std::string saved;
  TakeOver first;
  for (size_t leg = 0; leg < layouts.size(); ++leg) {
    const TakeOver last = leg < take_overs.size() ? take_overs[leg] : TakeOver{layouts[leg].steps};
    saved = run_leg(layouts[leg], saved, first, last, folder.path(), out);
    first = last;
  }
  return out;
}

// Returns the first difference, or "".
std::string difference(const Payload& got, const Payload& want) {
  if (got.size() != want.size()) return fmt::format("{} tensors, not {}", got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const auto &a = got[k].second, &b = want[k].second;
    if (got[k].first != want[k].first || a.size() != b.size())
      return got[k].first + ": another shape";
    for (size_t i = 0; i < a.size(); ++i) {
      const bool no_number = std::isnan(a[i]) && std::isnan(b[i]);
      if (!no_number && std::memcmp(&a[i], &b[i], sizeof(double)) != 0)
        return fmt::format("{} [{}]: {}, not {}", got[k].first, i, a[i], b[i]);
    }
  }
  return "";
}

using Layout = RandomRun (*)(const RandomRun& run, uint32_t stream);

RandomRun any_layout(const RandomRun& run, uint32_t stream) { return with_layout(run, stream); }

std::vector<RandomRun> draw_layouts(const RandomRun& run, size_t count, Layout layout) {
  std::vector<RandomRun> out;
  for (uint32_t stream = 4; out.size() < count; ++stream) {
    if (stream != 6 && stream != 7 && stream != 8 && stream != 9)
      out.push_back(layout(run, stream));
  }
  return out;
}

// Trains under all layouts and compares the results with those of the plain run. Returns the error,
// or "".
std::string check(const RandomRun& plain, const std::vector<RandomRun>& layouts,
                  const std::vector<TakeOver>& take_overs) {
  std::string what = "\n" + plain.text();
  for (size_t leg = 0; leg < layouts.size(); ++leg) {
    if (leg > 0)
      what += fmt::format("\nfrom step {} on, saved {} its events", take_overs[leg - 1].step,
                          take_overs[leg - 1].behind ? "after" : "before");
    what += "\n" + layouts[leg].text();
  }
  what += "\n" + plain.graph.print();
  try {
    std::string differs = difference(train(layouts, take_overs), train(plain));
    return differs.empty() ? "" : differs + what;
  } catch (const std::exception& error) {
    return error.what() + what;
  }
}

// Counts the drawn features and what the layouts' programs contain, so that a test that compares
// nothing fails.
struct Used {
  std::map<std::string, int> ops, optimizers;
  int different = 0;
  int long_steps = 0, repeated = 0;
  int thaws = 0, writes = 0, uneven = 0, resumed = 0, copies = 0, f16 = 0;

  void add(const RandomRun& plain, const std::vector<RandomRun>& layouts) {
    for (const RandomRun& run : layouts) {
      PlanPrograms programs;
      programs.written_out = run.written_out;
      Program step =
          compile_plan(run.graph, run.config, 0, run.world, Machine{}, true, programs).step();
      long_steps += run.config.accumulation > 6;
      repeated += step.repeat.rounds > 1;
      for (const Instr& in : step.instrs) ++ops[in.def->name];
      different +=
          step.print() !=
          compile_plan(plain.graph, plain.config, 0, plain.world, Machine{}).step().print();
      copies += run.config.zero.mics_shard_size > 1 && run.config.zero.mics_shard_size < run.world;
    }
    ++optimizers[plain.config.optimizer.type];
    resumed += layouts.size() > 1;
    uneven += plain.uneven();
    f16 += plain.config.compute == DS_DTYPE_F16;
    for (const std::vector<RunEvent>& events : plain.events) {
      for (const RunEvent& e : events) {
        thaws += e.kind == RunEvent::Kind::thaw;
        writes += e.kind == RunEvent::Kind::write && e.frozen;
      }
    }
  }
};

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

// Under nearly every policy, a long step is compiled as a repetition of a few micro-steps.
TEST(Property, AnyLongStepIsCompiledAsARepetition) {
  // The number of programs, by micro-steps of a round.
  std::map<int32_t, int> stretches;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    RandomRun c = with_layout(draw_plain_run(seed), 4);
    c.config.accumulation = 1000;
    PlanPrograms programs;
    Program step = compile_plan(c.graph, c.config, 0, c.world, Machine{}, true, programs).step();
    ++stretches[step.repeat.rounds > 1 ? step.repeat.micros : 0];
  }
  EXPECT_LE(stretches[0], 3) << "steps that are written out";
  EXPECT_GT(stretches[1], 100);
}

TEST(Property, AnyProgramParsesBack) {
  int with_runs = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RandomRun c = with_layout(draw_plain_run(seed), 4);
    int rank = static_cast<int>(seed % static_cast<uint64_t>(c.world));
    Plan plan = compile_plan(c.graph, c.config, rank, c.world, Machine{});
    for (const Program* p : programs_of(plan)) {
      std::string text = p->print();
      Program parsed = parse_program(text);
      EXPECT_EQ(parsed.print(), text) << "seed " << seed;
      ASSERT_EQ(parsed.instrs.size(), p->instrs.size()) << "seed " << seed;
      for (InstrId i : p->instrs.ids()) {
        EXPECT_EQ(parsed.instrs[i].runs, p->instrs[i].runs)
            << "seed " << seed << ", instruction " << i.number();
        with_runs += p->instrs[i].runs.size() > 1;
      }
    }
  }
  EXPECT_GT(with_runs, 20);
}

// All ranks have the same collectives and the same repetition, no matter what work a rank's part
// needs in between.
TEST(Property, RanksOfAnyLayoutCompileToOneHash) {
  int kinds = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    RandomRun run = with_layout(draw_plain_run(seed), 4);
    run.config.zero.sub_group_size = 1;
    if (seed % 2 == 0) run.config.accumulation = 30;
    PlanPrograms programs;
    std::vector<Plan> plans;
    for (int rank = 0; rank < run.world; ++rank)
      plans.push_back(
          compile_plan(run.graph, run.config, rank, run.world, Machine{}, true, programs));
    TrainedParams trained = plans[0].zero.trained;
    for (ParamId p : trained.frozen.ids()) {
      trained.frozen[p] = p.number() % 2 == 0 && p.number() > 0;
      if (!trained.frozen[p]) trained.begun[p] = 1;
    }
    for (int rank = 0; rank < run.world; ++rank) {
      EXPECT_EQ(plans[static_cast<size_t>(rank)].hash, plans[0].hash) << run.text();
      const auto after = [&](int r) {
        return recompile_plan(plans[static_cast<size_t>(r)], run.graph, run.config, Machine{},
                              trained);
      };
      const Plan mine = after(rank), first = after(0);
      EXPECT_EQ(mine.hash, first.hash) << run.text();
      kinds +=
          mine.step().repeat.rounds > 1 && mine.step().repeat.begin != first.step().repeat.begin;
    }
  }
  EXPECT_GT(kinds, 0);
}

TEST(Property, AnyPolicyHasTheResultsOfPolicyNone) {
  int64_t first = setting("DS_PROPERTY_FIRST", 1), cases = setting("DS_PROPERTY_CASES", 40);
  Used used;
  int bad = 0;
  for (int64_t seed = first; seed < first + cases && bad < 20; ++seed) {
    const RandomRun plain = draw_plain_run(static_cast<uint64_t>(seed));
    const std::vector<TakeOver> take_overs = draw_take_overs(plain);
    const std::vector<RandomRun> layouts = draw_layouts(plain, take_overs.size() + 1, any_layout);
    // Engines measure the heap, which takes longer the longer malloc's free list is.
    malloc_trim(0);
    used.add(plain, layouts);
    std::string wrong = check(plain, layouts, take_overs);
    bad += !wrong.empty();
    EXPECT_TRUE(wrong.empty()) << wrong;
  }
  if (cases < 40) return;
  EXPECT_GT(used.different, cases * 3 / 4);
  EXPECT_GT(used.long_steps, 4);
  EXPECT_GE(used.repeated, used.long_steps * 9 / 10);
  for (const char* op : {"all_gather", "reduce_scatter", "all_reduce", "fetch", "store", "load",
                         "save", "accumulate", "zero", "dropout", "attention", "embedding_dw"}) {
    EXPECT_GT(used.ops[op], 20) << op;
  }
  EXPECT_EQ(used.optimizers.size(), 6u);
  for (int drawn : {used.thaws, used.writes, used.uneven, used.resumed, used.copies, used.f16})
    EXPECT_GT(drawn, 2);
}

// For values that differ between ranks (gradients and, between synchronisations of 0/1 Adam,
// parameters and momentum), rank 0's are compared.
TEST(Property, AnyPolicyHasTheResultsOfPolicyNoneWhenSignsAreExchanged) {
  int64_t first = setting("DS_PROPERTY_FIRST", 1), cases = setting("DS_PROPERTY_CASES", 40) / 2;
  std::set<std::string> types;
  int bad = 0;
  for (int64_t seed = first; seed < first + cases && bad < 20; ++seed) {
    const RandomRun plain = draw_compressed_run(static_cast<uint64_t>(seed));
    types.insert(plain.config.gradient_compression.on() ? plain.config.gradient_compression.type
                                                        : plain.config.optimizer.type);
    const std::vector<TakeOver> take_overs = draw_take_overs(plain);
    malloc_trim(0);
    std::string wrong = check(
        plain, draw_layouts(plain, take_overs.size() + 1, with_compressed_layout), take_overs);
    bad += !wrong.empty();
    EXPECT_TRUE(wrong.empty()) << wrong;
  }
  EXPECT_TRUE(cases < 20 || types.size() == 5);
}

}  // namespace
}  // namespace ds::test
