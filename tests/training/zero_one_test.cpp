// Tests 0/1 Adam: the forms of its steps, what ranks have in common and where they differ, and what
// a checkpoint keeps between two synchronisations. The comparison with DeepSpeed's recorded numbers
// is in onebit_recorded_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/run_engines.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::zero_one {
namespace {

// A number of updates after which ranks agree, with the settings of 0/1 Adam in config_of(). They
// also agree after 1 to 7 updates.
constexpr int kAgreed = 11;

Point zero_one(int world) {
  Point p;
  p.world = world;
  p.optimizer = "ZeroOneAdam";
  p.leaves = 2 * world;
  return p;
}

std::string train(const Point& p, int steps = kAgreed) { return run_steps(p, config_of(p), steps); }

TEST(ZeroOne, StepsHaveTheExpectedForms) {
  std::string forms;
  const OptimizerConfig o = config_of(zero_one(2)).optimizer;
  for (int64_t u = 0; u < 20; ++u) forms += form_name(optimizer_of(o).form(o, u))[0];
  // The letters mean step, gradients, freezing, compressed and local.
  EXPECT_EQ(forms, "sgsgfcclllclllclllcl");
}

TEST(ZeroOne, SameBitsOverTiersBucketsThreadsAndOrders) {
  for (int world : {1, 2, 3, 4}) {
    const std::string expected = train(zero_one(world));
    std::vector<Point> points(4, zero_one(world));
    points[0].threads = 3;
    points[0].bucket_size = 3000;
    points[1].tier = Tier::host;
    points[1].separate = 3;
    points[2].tier = Tier::nvme;
    points[2].chaos = 5;
    points[3].chaos = 7;
    points[3].nodes = world == 4 ? 2 : 0;
    for (const Point& p : points) EXPECT_EQ(train(p), expected) << p.name();
  }
}

TEST(ZeroOne, WorksInHalfPrecisionWithGroupsAndLongSteps) {
  Point p = zero_one(3);
  p.compute = DS_DTYPE_F32;
  p.groups = true;
  const std::string grouped = train(p);
  p.bucket_size = 3000;
  p.tier = Tier::nvme;
  EXPECT_EQ(train(p), grouped);
  Point half = zero_one(2);
  half.compute = DS_DTYPE_F16;
  half.leaves = 24;
  const std::string written = train(half);
  half.written_out = 4;
  half.chaos = 3;
  EXPECT_EQ(train(half), written);
}

std::vector<float> read_all(Engine& engine, const char* kind) {
  std::vector<float> out;
  for (ParamId p : engine.store().param_names().ids()) {
    std::vector<float> one = engine.store().read_tensor(p, kind);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

// Returns whether all ranks have the same values.
bool agrees(Engine& engine, const std::vector<float>& mine) {
  Communicator& comm = engine.runtime().comm();
  std::vector<float> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.all_gather(mine.data(), all.data(), mine.size() * sizeof(float), "compared");
  for (size_t e = 0; e < all.size(); ++e) {
    if (all[e] != all[e % mine.size()]) return false;
  }
  return true;
}

TEST(ZeroOne, RanksAgreeOnMastersButNotOnParametersBetweenSynchronisations) {
  Point p = zero_one(3);
  p.compute = DS_DTYPE_F32;
  run_engines(p, config_of(p), [&](Engine& engine) {
    std::vector<float> before = read_all(engine, "master");
    const OptimizerConfig o = config_of(p).optimizer;
    for (int s = 0; s < kAgreed; ++s) {
      const StepForm form = optimizer_of(o).form(o, s);
      train_step(p, engine, s);
      const std::vector<float> master = read_all(engine, "master"),
                               param = read_all(engine, "param");
      EXPECT_TRUE(agrees(engine, master)) << s;
      EXPECT_EQ(agrees(engine, param), form != StepForm::local) << s;
      EXPECT_EQ(master == before, form == StepForm::local) << s;
      EXPECT_EQ(param == master, form != StepForm::local) << s;
      before = master;
    }
  });
}

TEST(ZeroOne, ALocalStepSendsLossesAndOneNumber) {
  for (int world : {2, 3}) {
    Point p = zero_one(world);
    run_engines(p, config_of(p), [&](Engine& engine) {
      const OptimizerConfig o = config_of(p).optimizer;
      const int64_t micros = p.leaves / world;
      std::map<StepForm, int64_t> bytes;
      for (int s = 0; s < kAgreed; ++s) {
        const int64_t before = bytes_received(engine);
        train_step(p, engine, s);
        bytes[optimizer_of(o).form(o, s)] = bytes_received(engine) - before;
      }
      EXPECT_EQ(bytes[StepForm::local], (world - 1) * (4 * micros + 8));
      EXPECT_EQ(bytes[StepForm::compressed], bytes[StepForm::gradients]);
      EXPECT_EQ(bytes[StepForm::compressed], bytes[StepForm::freezing]);
      EXPECT_LT(bytes[StepForm::local], bytes[StepForm::compressed]);
      // The tensors are small, so scales are a large part of the compressed bytes.
      EXPECT_LT(3 * bytes[StepForm::compressed], bytes[StepForm::reduced]);
    });
  }
}

// A skipped step of any form leaves states, sums of steps and sums of rates unchanged.
TEST(ZeroOne, ASkippedStepChangesNothing) {
  Graph g;
  g.bound = 1;
  TensorType type{DS_DTYPE_F32, {3000}};
  ValueId loss = g.add("mse", {g.add_param("p", type, {"normal", 0.1}), g.add_input("t", type)});
  g.add_output("loss", loss);
  auto run = [&](int bad) {
    std::vector<float> out;
    run_ranks(2, [&](Communicator& comm) {
      Config c = config_of(zero_one(2));
      c.accumulation = 1;
      c.train_batch = 2;
      c.compute = DS_DTYPE_F32;
      Engine engine(c, g, comm, {});
      for (int s = 0; s < kAgreed; ++s) {
        std::vector<float> t(3000);
        for (size_t e = 0; e < t.size(); ++e)
          t[e] = std::sin(static_cast<float>(e * 3) + static_cast<float>(comm.rank() + s));
        std::vector<float> worse = t;
        worse[17] = comm.rank() == 1 ? std::numeric_limits<float>::infinity() : 0;
        auto batch = [&](const std::vector<float>& target) {
          const InputView input{target.data(), DS_DTYPE_F32, std::ssize(target)};
          return engine.train_batch({&input, 1});
        };
        if (s == bad) {
          EXPECT_TRUE(batch(worse).skipped);
        }
        EXPECT_FALSE(batch(t).skipped);
      }
      std::vector<float> mine = read_all(engine, "param");
      EXPECT_TRUE(agrees(engine, mine));
      if (comm.rank() == 0) out = mine;
    });
    return out;
  };
  const std::vector<float> expected = run(-1);
  for (int bad : {0, 1, 4, 6, 8, 10}) EXPECT_EQ(run(bad), expected) << bad;
}

// --- checkpoints ---

std::string resumed(const Point& p, const Point& q, int at, int steps, const std::string& folder) {
  run_ranks(p.world, [&](Communicator& comm) {
    EngineOptions options;
    set_device(options, p);
    Engine engine(config_of(p), graph_of(p), comm, options);
    for (int s = 0; s < at; ++s) train_step(p, engine, s);
    engine.checkpoints().save(folder, {}, {}, "");
  });
  return run_engines(q, config_of(q), [&](Engine& engine) {
    // The load overwrites the effect of these steps.
    for (int s = 0; s < 9; ++s) train_step(q, engine, 50 + s);
    engine.checkpoints().load(folder, "");
    for (int s = at; s < steps; ++s) train_step(q, engine, s);
  });
}

TEST(ZeroOne, ResumesExactlyInEveryForm) {
  constexpr int kSteps = kAgreed + 8;
  const std::string straight = train(zero_one(2), kSteps);
  for (int at : {2, 4, 5, 7, 8, 9, 10, 11}) {
    TempFolder folder;
    Point elsewhere = zero_one(2);
    if (at % 2 == 0) {
      elsewhere.tier = Tier::host;
      elsewhere.bucket_size = 3000;
    }
    EXPECT_EQ(resumed(zero_one(2), elsewhere, at, kSteps, folder.path()), straight) << at;
  }
}

TEST(ZeroOne, OneRankResumesExactlyBetweenSynchronisations) {
  TempFolder folder;
  EXPECT_EQ(resumed(zero_one(1), zero_one(1), 9, kAgreed + 4, folder.path()),
            train(zero_one(1), kAgreed + 4));
}

// The steps since ranks last agreed belong to ranks that no longer exist, and are lost.
TEST(ZeroOne, AnotherNumberOfRanksResumesWhereRanksLastAgreed) {
  TempFolder folder;
  std::vector<float> agreed;
  run_ranks(2, [&](Communicator& comm) {
    Point p = zero_one(2);
    Engine engine(config_of(p), graph_of(p), comm, {});
    for (int s = 0; s < 9; ++s) train_step(p, engine, s);
    std::vector<float> master = read_all(engine, "master");
    if (comm.rank() == 0) agreed = master;
    engine.checkpoints().save(folder.path(), {}, {}, "");
  });
  Point more = zero_one(3);
  run_engines(more, config_of(more), [&](Engine& engine) {
    // The load must discard these local steps.
    for (int s = 0; s < 8; ++s) train_step(more, engine, s);
    engine.checkpoints().load(folder.path(), "");
    EXPECT_EQ(read_all(engine, "master"), agreed);
    EXPECT_TRUE(agrees(engine, read_all(engine, "param")));
    for (int s = 9; s < kAgreed; ++s) train_step(more, engine, s);
  });
}

TEST(ZeroOne, FreezingAParameterBetweenSynchronisationsDropsTheLocalSteps) {
  for (int at : {3, 8, 11}) {
    Point p = zero_one(2);
    p.compute = DS_DTYPE_F32;
    run_engines(p, config_of(p), [&](Engine& engine) {
      const std::vector<int32_t> some{2, 5};
      for (int s = 0; s < at; ++s) train_step(p, engine, s);
      const std::vector<float> master = read_all(engine, "master");
      engine.trained().freeze(some, 1);
      EXPECT_EQ(read_all(engine, "param"), master);
      const std::vector<float> frozen = engine.store().read_tensor(ParamId(2), "param");
      for (int s = at; s < 15; ++s) train_step(p, engine, s);
      EXPECT_EQ(engine.store().read_tensor(ParamId(2), "param"), frozen);
      engine.trained().freeze(some, 0);
      for (int s = 15; s < 19; ++s) train_step(p, engine, s);
      EXPECT_NE(engine.store().read_tensor(ParamId(2), "param"), frozen);
    });
  }
}

// Writing a master moves the common part of all ranks' parameters and keeps their local steps.
TEST(ZeroOne, AWrittenMasterKeepsTheLocalSteps) {
  Point p = zero_one(2);
  p.compute = DS_DTYPE_F32;
  run_engines(p, config_of(p), [&](Engine& engine) {
    for (int s = 0; s < 9; ++s) train_step(p, engine, s);
    const std::vector<float> param = engine.store().read_tensor(ParamId(0), "param");
    std::vector<float> master = engine.store().read_tensor(ParamId(0), "master");
    for (float& x : master) x += 1;
    engine.store().write_tensor(ParamId(0), "master", master);
    const std::vector<float> moved = engine.store().read_tensor(ParamId(0), "param");
    for (size_t e = 0; e < param.size(); ++e) ASSERT_NEAR(moved[e], param[e] + 1, 1e-6);
    for (int s = 9; s < kAgreed; ++s) train_step(p, engine, s);
  });
}

// --- refusals ---

std::string refusal(const std::string& params, const std::string& more = "") {
  try {
    parse_config(
        Json::parse(R"({"train_batch_size": 2, "optimizer": {"type": "ZeroOneAdam", "params": )" +
                    params + "}" + more + "}"),
        2);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ZeroOne, InvalidConfigurationsAreRefused) {
  const struct {
    const char *params, *more, *says;
  } cases[] = {
      {"{}", R"(, "zero_optimization": {"stage": 1})",
       "ZeroOneAdam needs zero_optimization.stage 0, got 1"},
      {"{}", R"(, "zero_optimization": {"stage": 3})",
       "ZeroOneAdam needs zero_optimization.stage 0, got 3"},
      {R"({"var_freeze_step": 0})", "", "var_freeze_step"},
      {R"({"var_update_scaler": 0})", "", "var_update_scaler"},
      {R"({"local_step_scaler": -1})", "", "local_step_scaler"},
      {R"({"local_step_clipper": 1.5})", "", "local_step_clipper"},
      {R"({"freeze_step": 5})", "", "not a parameter of"},
      {R"({"factor_max": 5})", "", "not a parameter of"},
  };
  for (const auto& c : cases) {
    const std::string message = refusal(c.params, c.more);
    EXPECT_NE(message.find(c.says), std::string::npos) << c.params << ": " << message;
  }
  EXPECT_EQ(refusal("{}"), "");
}

}  // namespace
}  // namespace ds::test::zero_one
