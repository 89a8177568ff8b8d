// Tests fp16 with its loss scale: equal bits over layouts, even with skipped steps, and a scale
// that a resumed run continues with.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/agree.h"
#include "core/base/half.h"
#include "core/config/loss_scaler.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::loss_scale_test {
namespace {

using namespace test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns the result of a step as text. The norm of a skipped step is given as 0.
std::string trace_of(const StepResult& r) {
  return fmt::format("step {} updates {} loss {} norm {} scale {} {}\n", r.step, r.updates, r.loss,
                     r.skipped ? 0 : r.grad_norm, r.loss_scale, r.skipped ? "skipped" : "");
}

struct Course {
  std::string trace, state;
  LossScaler scaler;
  int64_t skipped = 0;
  bool operator==(const Course&) const = default;
};

// Returns a configuration whose scale starts too high and grows every third step, so that steps are
// skipped early and again later.
Config searching(const Point& p) {
  Config config = config_of(p);
  config.loss_scale = {.initial_scale_power = 22, .window = 3, .hysteresis = 2};
  return config;
}

Course course_of(const Point& p, int steps) {
  Course out;
  run_ranks(p.world, [&](Communicator& comm) {
    EngineOptions options;
    options.threads = p.threads;
    set_device(options, p);
    Engine engine(searching(p), graph_of(p), comm, options);
    Course mine;
    for (int s = 0; s < steps; ++s) {
      StepResult r = train_step(p, engine, s);
      mine.trace += trace_of(r);
      mine.skipped += r.skipped ? 1 : 0;
    }
    mine.state = state_hash(engine.store());
    mine.scaler = engine.control().scaler();
    agree_equal(comm, "trace", mine.trace + mine.state);
    if (comm.rank() == 0) out = mine;
  });
  return out;
}

TEST(LossScale, HasTheSameBitsOverStagesTiersAndDevices) {
  constexpr int kSteps = 14;
  for (int world : {1, 2, 3}) {
    Point plain{.world = world, .leaves = world == 1 ? 2 : 2 * world, .compute = DS_DTYPE_F16};
    const Course want = course_of(plain, kSteps);
    EXPECT_GE(want.skipped, 3) << want.trace;
    EXPECT_LE(want.skipped, kSteps - 5) << want.trace;
    int i = world;
    for (int stage = 0; stage <= 3; ++stage) {
      for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        ++i;
        if (world != 2 && i % 3 != 0) continue;
        Point p = plain;
        p.stage = stage;
        p.tier = tier;
        p.threads = 1 + i % 2;
        p.overlap = i % 3 != 0;
        if (i % 4 == 0) p.chaos = static_cast<uint64_t>(i);
        if (i % 4 == 2) p.separate = static_cast<uint64_t>(i);
        EXPECT_EQ(course_of(p, kSteps).trace, want.trace) << p.name();
        EXPECT_EQ(course_of(p, kSteps), want) << p.name();
      }
    }
  }
}

TEST(LossScale, HasTheSameBitsOverNumbersOfRanksWhereReproducible) {
  Point p{.world = 1, .reproducible = true, .leaves = 4, .compute = DS_DTYPE_F16};
  const Course want = course_of(p, 8);
  for (int world : {2, 4}) {
    p.world = world;
    p.stage = world == 2 ? 3 : 1;
    EXPECT_EQ(course_of(p, 8), want) << p.name();
  }
}

// Trains 10 steps, saves, and trains 10 more on another layout. The scale causes some overflows,
// and the test causes one before and one after the save.
TEST(LossScale, AResumedRunHasTheBitsOfAnUnbrokenRun) {
  Point from{.stage = 1, .compute = DS_DTYPE_F16};
  Point onto{.stage = 3, .tier = Tier::host, .threads = 2, .compute = DS_DTYPE_F16};
  run_ranks(from.world, [&](Communicator& comm) {
    auto step = [&](const Point& p, Engine& engine, int64_t s) {
      if (s != 6 && s != 13) return trace_of(train_step(p, engine, s));
      StepResult bad = train_step_in_pieces(p, engine, s, [&] {
        std::vector<float> grad = engine.store().read_tensor(ParamId(1), "grad");
        grad.front() = kInfinity;
        engine.store().write_tensor(ParamId(1), "grad", grad);
      });
      EXPECT_TRUE(bad.skipped);
      return trace_of(bad);
    };
    Engine straight(searching(from), graph_of(from), comm, {}),
        first(searching(from), graph_of(from), comm, {});
    std::string unbroken, broken;
    for (int64_t s = 0; s < 20; ++s) unbroken += step(from, straight, s);
    for (int64_t s = 0; s < 10; ++s) broken += step(from, first, s);
    std::string folder = on_root(comm, "folder", [] { return scratch_folder() + "/fp16"; });
    first.checkpoints().save(folder, Json(), {});
    Engine second(searching(onto), graph_of(onto), comm, {});
    second.checkpoints().load(folder);
    EXPECT_EQ(second.control().scaler(), first.control().scaler());
    EXPECT_NE(second.control().scaler(), first_scaler(searching(onto).loss_scale));
    for (int64_t s = 10; s < 20; ++s) broken += step(onto, second, s);
    EXPECT_EQ(broken, unbroken);
    EXPECT_EQ(second.control().scaler(), straight.control().scaler());
    EXPECT_EQ(state_hash(second.store()), state_hash(straight.store()));
    EXPECT_NE(unbroken.find("skipped"), unbroken.npos);
  });
}

// The scale affects no loss, norm, gradient or update, except that it decides which small gradients
// f16 can represent.
TEST(LossScale, IsDividedOutOfAllResults) {
  auto numbers = [](double scale, DType compute) {
    std::vector<std::vector<float>> out;
    Point p{.world = 1, .leaves = 1, .compute = compute, .dropout = 0, .clipping = 0};
    run_ranks(1, [&](Communicator& comm) {
      Config config = config_of(p);
      config.loss_scale.loss_scale = scale;
      Engine engine(config, graph_of(p), comm, {});
      StepResult r = train_step(p, engine, 0);
      EXPECT_EQ(r.loss_scale, compute == DS_DTYPE_F16 ? scale : 1);
      out.push_back({static_cast<float>(r.loss), static_cast<float>(r.grad_norm)});
      for (ParamId q : engine.store().param_names().ids()) {
        out.push_back(engine.store().read_tensor(q, "grad"));
        out.push_back(engine.store().read_tensor(q, "exp_avg"));
      }
    });
    return out;
  };
  const auto plain = numbers(1, DS_DTYPE_F32);
  for (double scale : {1.0, 1024.0, 3000.0}) {
    const auto scaled = numbers(scale, DS_DTYPE_F16);
    for (size_t t = 0; t < plain.size(); ++t) {
      double most = 0, off = 0;
      for (size_t e = 0; e < plain[t].size(); ++e) {
        most = std::max(most, static_cast<double>(std::abs(plain[t][e])));
        off = std::max(off, static_cast<double>(std::abs(plain[t][e] - scaled[t][e])));
      }
      EXPECT_LE(off, 0.02 * most + 1e-7) << "tensor " << t << " scale " << scale;
    }
  }
}

// An f16 graph refuses f32 inputs, unless auto_cast is set: then they are rounded.
TEST(LossScale, AutoCastRoundsInputs) {
  auto train = [](bool cast, DType given) {
    double loss = 0;
    run_ranks(1, [&](Communicator& comm) {
      Graph graph = parse_graph(
          "graph g n<=2\n"
          "input %x f32[n,4]\n"
          "input %t f32[n,4]\n"
          "param %w f32[4,4] = normal 0.02\n"
          "%y = linear %x %w -> f32[n,4]\n"
          "%l = mse %y %t -> f32[]\n"
          "output loss=%l\n");
      Config config = make_config(0, 1, 1);
      config.compute = DS_DTYPE_F16;
      config.auto_cast = cast;
      config.loss_scale.loss_scale = 16;
      Engine engine(config, graph, comm, {});
      std::vector<float> wide{0.1f, 0.2f, 0.3f, 0.4f, -0.1f, 0.7f, 1.3f, -2.6f};
      std::vector<std::byte> narrowed(wide.size() * 2);
      narrow(DS_DTYPE_F16, wide.data(), 8, narrowed.data());
      const void* data =
          given == DS_DTYPE_F32 ? static_cast<const void*>(wide.data()) : narrowed.data();
      InputView inputs[] = {{data, given, 8}, {data, given, 8}};
      loss = engine.train_batch(inputs).loss;
      EXPECT_FALSE(engine.control().last().skipped);
    });
    return loss;
  };
  const double want = train(false, DS_DTYPE_F16);
  EXPECT_EQ(train(true, DS_DTYPE_F16), want);
  EXPECT_EQ(train(true, DS_DTYPE_F32), want);
  expect_names(message_of([&] { train(false, DS_DTYPE_F32); }, DS_ERROR_INVALID_ARGUMENT),
               {"input 'x' must be f16, got f32"});
}

// A bf16 run without an overflow check updates even with NaN. fp16 and f32 always check.
TEST(LossScale, AnUncheckedBf16StepUpdatesWithNan) {
  for (bool check : {true, false}) {
    Point p{.compute = DS_DTYPE_BF16};
    run_ranks(p.world, [&](Communicator& comm) {
      Config config = config_of(p);
      config.check_grad_overflow = check;
      Engine engine(config, graph_of(p), comm, {});
      StepResult r = train_step_in_pieces(p, engine, 0, [&] {
        std::vector<float> grad = engine.store().read_tensor(ParamId(1), "grad");
        grad.front() = std::nanf("");
        engine.store().write_tensor(ParamId(1), "grad", grad);
      });
      EXPECT_EQ(r.skipped, check);
      EXPECT_EQ(r.updates, check ? 0 : 1);
      EXPECT_EQ(std::isnan(engine.store().read_tensor(ParamId(1), "master").front()), !check);
    });
  }
}

}  // namespace
}  // namespace ds::loss_scale_test
