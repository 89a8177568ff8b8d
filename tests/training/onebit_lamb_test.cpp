// Tests 1-bit LAMB: what its bits depend on, which coefficients it keeps for each parameter, its
// checkpoints and refusals. The comparison with DeepSpeed's recorded numbers is in
// onebit_recorded_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/run_engines.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::onebit_lamb {
namespace {

constexpr int64_t kFreeze = 3;

Point lamb(int world, int stage = 0) {
  Point p;
  p.world = world;
  p.stage = stage;
  p.optimizer = "OneBitLamb";
  p.leaves = 2 * world;
  return p;
}

Config config_with(const Point& p, int64_t freeze_step = kFreeze) {
  Config c = config_of(p);
  c.optimizer.freeze_step = freeze_step;
  return c;
}

std::string train(const Point& p, int64_t freeze_step = kFreeze, int steps = 7) {
  return run_steps(p, config_with(p, freeze_step), steps);
}

TEST(OneBitLamb, SameBitsOverStagesTiersBucketsThreadsAndOrders) {
  for (int world : {1, 2, 3, 4}) {
    const std::string expected = train(lamb(world));
    EXPECT_NE(train(lamb(world), 100), expected) << "the freeze changes something";
    std::vector<Point> points(5, lamb(world, 1));
    points[1].threads = 3;
    points[1].bucket_size = 3000;
    points[2].tier = Tier::host;
    points[2].separate = 3;
    points[3].tier = Tier::nvme;
    points[3].chaos = 5;
    points[4].stage = 0;
    points[4].bucket_size = 3000;
    points[4].nodes = world == 4 ? 2 : 0;
    for (const Point& p : points) EXPECT_EQ(train(p), expected) << p.name();
  }
}

// Until the freeze, the optimizer is LAMB without bias correction.
TEST(OneBitLamb, WarmsUpAsLamb) {
  for (int stage : {0, 1}) {
    Point p = lamb(2, stage), q = lamb(2, stage);
    q.optimizer = "Lamb";
    Config plain = config_of(q);
    plain.optimizer.bias_correction = false;
    std::vector<float> with, without;
    run_engines(p, config_with(p, 100), [&](Engine& engine) {
      for (int s = 0; s < 3; ++s) train_step(p, engine, s);
      std::vector<float> all = engine.store().read_tensor(ParamId(1), "master");
      if (engine.runtime().comm().rank() == 0) with = all;
    });
    run_engines(q, plain, [&](Engine& engine) {
      for (int s = 0; s < 3; ++s) train_step(q, engine, s);
      std::vector<float> all = engine.store().read_tensor(ParamId(1), "master");
      if (engine.runtime().comm().rank() == 0) without = all;
    });
    EXPECT_EQ(with, without);
  }
}

TEST(OneBitLamb, WorksWithGroupsFrozenParametersAndLongSteps) {
  auto freezing = [](const Point& p) {
    return run_engines(p, config_with(p), [&](Engine& engine) {
      const std::vector<int32_t> some{2, 5};
      for (int s = 0; s < 8; ++s) {
        if (s == 4) engine.trained().freeze(some, 1);
        if (s == 6) engine.trained().freeze(some, 0);
        EXPECT_FALSE(train_step(p, engine, s).skipped);
      }
    });
  };
  Point first = lamb(3);
  first.groups = true;
  const std::string expected = freezing(first);
  for (Tier tier : {Tier::device, Tier::nvme}) {
    Point p = lamb(3, 1);
    p.groups = true;
    p.tier = tier;
    p.bucket_size = 3000;
    EXPECT_EQ(freezing(p), expected) << p.name();
  }
  Point half = lamb(2, 1);
  half.compute = DS_DTYPE_F16;
  half.leaves = 24;
  const std::string written = train(half);
  half.written_out = 4;
  half.chaos = 3;
  EXPECT_EQ(train(half), written);
}

// All momenta are sent as one tensor: one block for each rank, with one scale.
TEST(OneBitLamb, SendsOneBitAnElementAndOneScale) {
  for (int world : {2, 3}) {
    Point p = lamb(world);
    run_engines(p, config_with(p), [&](Engine& engine) {
      int64_t elements = 0;
      for (ParamId q : engine.store().param_names().ids())
        elements += std::ssize(engine.store().read_tensor(q, "master"));
      std::vector<int64_t> steps;
      for (int s = 0; s < 6; ++s) {
        int64_t before = bytes_received(engine);
        train_step(p, engine, s);
        steps.push_back(bytes_received(engine) - before);
      }
      const int64_t unit = 8 * world / std::gcd(world, 8) * world, micros = p.leaves / world;
      const int64_t block = 4 + (elements + unit - 1) / unit * unit / world / 8;
      EXPECT_EQ(steps[4], (world - 1) * (2 * block + 4 * micros + 8)) << world << " ranks";
      EXPECT_EQ(steps[3], steps[4]);
    });
  }
}

TEST(OneBitLamb, ASkippedStepChangesNothing) {
  Graph g;
  g.bound = 1;
  ValueId loss;
  for (int64_t i = 0; i < 2; ++i) {
    TensorType type{DS_DTYPE_F32, {1500 + i}};
    const std::string n = std::to_string(i);
    ValueId one =
        g.add("mse", {g.add_param("p" + n, type, {"normal", 0.1}), g.add_input("t" + n, type)});
    loss = i == 0 ? one : g.add("add", {loss, one});
  }
  g.add_output("loss", loss);
  auto run = [&](int bad) {
    std::vector<float> out;
    run_ranks(2, [&](Communicator& comm) {
      Config c = config_with(lamb(2, 1));
      c.accumulation = 1;
      c.train_batch = 2;
      c.compute = DS_DTYPE_F32;
      Engine engine(c, g, comm, {});
      auto batch = [&](int s, bool worse) {
        std::vector<float> t(1501);
        for (size_t e = 0; e < t.size(); ++e)
          t[e] = std::sin(static_cast<float>(e * 3) + static_cast<float>(comm.rank() + s));
        if (worse && comm.rank() == 1) t[17] = std::numeric_limits<float>::infinity();
        const InputView inputs[] = {{t.data(), DS_DTYPE_F32, 1500}, {t.data(), DS_DTYPE_F32, 1501}};
        return engine.train_batch(inputs);
      };
      for (int s = 0; s < 8; ++s) {
        if (s == bad) {
          EXPECT_TRUE(batch(s, true).skipped);
        }
        EXPECT_FALSE(batch(s, false).skipped);
      }
      std::vector<float> mine = engine.store().read_tensor(ParamId(1), "master");
      if (comm.rank() == 0) out = mine;
    });
    return out;
  };
  const std::vector<float> expected = run(-1);
  for (int bad : {1, 3, 5}) EXPECT_EQ(run(bad), expected) << bad;
}

// --- checkpoints ---

std::string resumed(const Point& p, const Point& q, int64_t freeze_step,
                    const std::string& folder) {
  run_engines(p, config_with(p, freeze_step), [&](Engine& engine) {
    for (int s = 0; s < 10; ++s) train_step(p, engine, s);
    engine.checkpoints().save(folder, {}, {}, "");
  });
  return run_engines(q, config_with(q, freeze_step), [&](Engine& engine) {
    // The load overwrites the effect of this step.
    train_step(q, engine, 50);
    engine.checkpoints().load(folder, "");
    for (int s = 10; s < 20; ++s) train_step(q, engine, s);
  });
}

TEST(OneBitLamb, ResumesExactlyOnBothSidesOfTheFreeze) {
  for (int64_t freeze_step : {5, 9, 10, 15}) {
    const std::string straight = train(lamb(2), freeze_step, 20);
    TempFolder same, other;
    EXPECT_EQ(resumed(lamb(2), lamb(2), freeze_step, same.path()), straight) << freeze_step;
    Point elsewhere = lamb(2, 1);
    elsewhere.tier = Tier::host;
    elsewhere.bucket_size = 3000;
    EXPECT_EQ(resumed(lamb(2), elsewhere, freeze_step, other.path()), straight) << freeze_step;
  }
}

std::vector<float> coefficients(Engine& engine) {
  const BufferId b = engine.plan().zero.joint_buffer(kCoefficients);
  std::vector<float> out(static_cast<size_t>(engine.plan().zero.memory.buffers[b].numel));
  engine.runtime().memory().read_floats(engine.runtime().buffer(b), 0, std::ssize(out), out.data());
  return out;
}

// Checkpoints hold the mean ratios of the warm-up, without which the steps after the freeze would
// have length 0.
TEST(OneBitLamb, CoefficientsResumeOnAnyNumberOfRanks) {
  TempFolder folder;
  std::vector<float> saved;
  Point p = lamb(2), q = lamb(3, 1);
  run_engines(p, config_with(p), [&](Engine& engine) {
    for (int s = 0; s < 6; ++s) train_step(p, engine, s);
    engine.checkpoints().save(folder.path(), {}, {}, "");
    if (engine.runtime().comm().rank() == 0) saved = coefficients(engine);
  });
  const std::set<float> values(saved.begin(), saved.end());
  EXPECT_GT(values.size(), saved.size() / 2) << "parameters have their own";
  run_engines(q, config_with(q), [&](Engine& engine) {
    engine.checkpoints().load(folder.path(), "");
    EXPECT_EQ(coefficients(engine), saved);
    const std::vector<float> before = engine.store().read_tensor(ParamId(0), "master");
    for (int s = 6; s < 9; ++s) train_step(q, engine, s);
    EXPECT_NE(engine.store().read_tensor(ParamId(0), "master"), before);
  });
}

// --- refusals ---

TEST(OneBitLamb, InvalidConfigurationsAreRefused) {
  auto refusal = [](const std::string& params, const std::string& more) -> std::string {
    try {
      parse_config(
          Json::parse(R"({"train_batch_size": 2, "optimizer": {"type": "OneBitLamb", "params": )" +
                      params + "}" + more + "}"),
          2);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const struct {
    const char *params, *more, *says;
  } cases[] = {
      {"{}", R"(, "zero_optimization": {"stage": 2})",
       "needs zero_optimization.stage 0 or 1, got 2"},
      {R"({"freeze_step": 0})", "", "freeze_step"},
      {R"({"coeff_beta": 1})", "", "coeff_beta"},
      {R"({"factor_max": -1})", "", "factor_max"},
      {R"({"factor_max": 0.25})", "", "factor_min: must not be above factor_max 0.25, got 0.5"},
      {R"({"factor_threshold": "a"})", "", "factor_threshold"},
      {R"({"min_coeff": 3, "max_coeff": 2})", "", "max_coeff"},
      {R"({"var_freeze_step": 3})", "", "not a parameter of"},
      {R"({"eps_inside_sqrt": true})", "", "not a parameter of"},
  };
  for (const auto& c : cases) {
    const std::string message = refusal(c.params, c.more);
    EXPECT_NE(message.find(c.says), std::string::npos) << c.params << ": " << message;
  }
  EXPECT_EQ(refusal("{}", ""), "");
}

}  // namespace
}  // namespace ds::test::onebit_lamb
