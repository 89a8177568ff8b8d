// Tests 1-bit Adam after its freeze: what its bits depend on, what it sends, keeps and refuses. The
// comparison with DeepSpeed's recorded numbers is in onebit_recorded_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/flip_byte.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/run_engines.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::onebit {
namespace {

constexpr int64_t kFreeze = 3;

Point onebit(int world, int stage = 0) {
  Point p;
  p.world = world;
  p.stage = stage;
  p.optimizer = "OneBitAdam";
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

TEST(OneBit, SameBitsOverStagesTiersThreadsAndOrders) {
  for (int world : {2, 3, 4}) {
    const std::string expected = train(onebit(world));
    EXPECT_NE(train(onebit(world), 100), expected) << "the freeze changes something";
    std::vector<Point> points(6, onebit(world, 1));
    points[1].threads = 3;
    points[1].bucket_size = 3000;
    points[2].tier = Tier::host;
    points[2].separate = 3;
    points[3].tier = Tier::nvme;
    points[3].overlap = false;
    points[4].stage = 0;
    points[4].tier = Tier::nvme;
    points[4].chaos = 5;
    points[5].chaos = 7;
    points[5].nodes = world == 4 ? 2 : 0;
    for (const Point& p : points) EXPECT_EQ(train(p), expected) << p.name();
  }
}

TEST(OneBit, ALongStepRepeatsItsProgram) {
  Point p = onebit(2, 1);
  p.leaves = 24;
  const std::string expected = train(p, 2, 4);
  p.written_out = 4;
  EXPECT_EQ(train(p, 2, 4), expected);
  p.reproducible = true;
  p.leaves = 16;
  const std::string tree = train(p, 2, 4);
  p.written_out = 16;
  p.stage = 0;
  EXPECT_EQ(train(p, 2, 4), tree);
}

TEST(OneBit, GroupsAndFrozenParametersHaveTheSameBitsOnEveryLayout) {
  auto freezing = [](const Point& p) {
    return run_engines(p, config_with(p), [&](Engine& engine) {
      const std::vector<int32_t> some{2, 5};
      for (int s = 0; s < 8; ++s) {
        if (s == 4) engine.trained().freeze(some, 1);
        if (s == 6) engine.trained().freeze(some, 0);
        train_step(p, engine, s);
      }
    });
  };
  Point first = onebit(3);
  first.groups = true;
  const std::string expected = freezing(first);
  for (Tier tier : {Tier::device, Tier::nvme}) {
    Point p = onebit(3, 1);
    p.groups = true;
    p.tier = tier;
    p.bucket_size = 3000;
    EXPECT_EQ(freezing(p), expected) << p.name();
  }
}

// A single rank has no peers: its variance is frozen, and nothing else changes.
TEST(OneBit, OneRankCompressesNothing) {
  Point p = onebit(1);
  auto comm = create_communicator("self", {});
  Engine engine(config_with(p), graph_of(p), *comm, {});
  for (int s = 0; s < kFreeze; ++s) train_step(p, engine, s);
  std::vector<float> variance = engine.store().read_tensor(ParamId(3), "exp_avg_sq");
  std::vector<float> momentum = engine.store().read_tensor(ParamId(3), "exp_avg");
  train_step(p, engine, kFreeze);
  EXPECT_EQ(engine.store().read_tensor(ParamId(3), "exp_avg_sq"), variance);
  std::vector<float> moved = engine.store().read_tensor(ParamId(3), "exp_avg");
  EXPECT_NE(moved, momentum);
  std::set<float> sizes;
  for (float m : moved) sizes.insert(std::abs(m));
  EXPECT_GT(sizes.size(), moved.size() / 2) << "no signs";
}

// After the freeze, all elements of a tensor's momentum within one rank's chunk have one magnitude,
// and the variance does not change.
TEST(OneBit, MomentumConsistsOfSignsAfterTheFreeze) {
  Point p = onebit(2, 1);
  run_engines(p, config_with(p), [&](Engine& engine) {
    for (int s = 0; s < kFreeze; ++s) train_step(p, engine, s);
    std::vector<float> variance = engine.store().read_tensor(ParamId(0), "exp_avg_sq");
    std::set<float> before, after;
    for (float m : engine.store().read_tensor(ParamId(0), "exp_avg")) before.insert(std::abs(m));
    train_step(p, engine, kFreeze);
    for (float m : engine.store().read_tensor(ParamId(0), "exp_avg")) after.insert(std::abs(m));
    EXPECT_GT(before.size(), 100u);
    EXPECT_LE(after.size(), 2u);
    EXPECT_EQ(engine.store().read_tensor(ParamId(0), "exp_avg_sq"), variance);
  });
}

// --- the wire ---

// Returns a graph with two large tensors and a small one, so that scales and padding have a
// realistic share of the bytes.
Graph large_graph() {
  Graph g;
  g.bound = 1;
  ValueId loss;
  const int64_t sizes[] = {40000, 999, 60000};
  for (int64_t i = 0; i < 3; ++i) {
    TensorType type{DS_DTYPE_F32, {sizes[i]}};
    std::string n = std::to_string(i);
    ValueId one =
        g.add("mse", {g.add_param("p" + n, type, {"normal", 0.1}), g.add_input("t" + n, type)});
    loss = i == 0 ? one : g.add("add", {loss, one});
  }
  g.add_output("loss", loss);
  return g;
}

using Targets = std::vector<std::vector<float>>;

Targets targets(int rank, int step) {
  Targets out;
  for (size_t count : {40000, 999, 60000}) {
    out.emplace_back(count);
    for (size_t e = 0; e < count; ++e) {
      auto angle = static_cast<double>(e * 7 + static_cast<size_t>(rank) * 3);
      out.back()[e] = static_cast<float>(std::sin(angle + step));
    }
  }
  return out;
}

StepResult step_on(Engine& engine, const Targets& t) {
  DType type = engine.plan().zero.compute;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<InputView> inputs;
  for (const std::vector<float>& x : t) {
    bytes.emplace_back(x.size() * static_cast<size_t>(size_of(type)));
    narrow(type, x.data(), static_cast<int64_t>(x.size()), bytes.back().data());
    inputs.push_back({bytes.back().data(), type, static_cast<int64_t>(x.size())});
  }
  return engine.train_batch(inputs);
}

StepResult step_of(Engine& engine, int step) {
  return step_on(engine, targets(engine.runtime().comm().rank(), step));
}

// Compares the bytes that a rank receives in all operations.
TEST(OneBit, SendsOneBitAnElement) {
  for (int world : {2, 3, 4}) {
    run_ranks(world, [&](Communicator& comm) {
      Config c = make_config(0, 1, world);
      c.compute = DS_DTYPE_BF16;
      c.optimizer.type = "OneBitAdam";
      c.optimizer.freeze_step = 2;
      Engine engine(c, large_graph(), comm, {});
      std::vector<int64_t> steps;
      for (int s = 0; s < 10; ++s) {
        int64_t before = bytes_received(engine);
        step_of(engine, s);
        steps.push_back(bytes_received(engine) - before);
      }
      // The smallest number of bytes that any all-reduce of bf16 gradients receives: a rank's part
      // from all other ranks, and the other ranks' parts of the sum.
      const double share = static_cast<double>(world - 1) / world;
      const double bf16 = 2 * share * 2 * (40000 + 999 + 60000);
      double all = 0;
      for (size_t s = 0; s < steps.size(); ++s) {
        EXPECT_EQ(steps[s], steps[s < 2 ? 0 : 2]) << "step " << s;
        all += static_cast<double>(s < 2 ? bf16 : steps[s]);
      }
      EXPECT_GE(static_cast<double>(steps[0]), bf16);
      EXPECT_LE(static_cast<double>(steps[2]), bf16 / 14) << world << " ranks";
      EXPECT_LE(all, 10 * bf16 / 3.5) << world << " ranks";
      // The exact number of bytes: blocks to and from each rank, losses and squared norms.
      int64_t block = 0;
      for (int64_t numel : {40000, 999, 60000}) {
        int64_t unit = 8 * world / std::gcd(world, 8) * world;
        block += 4 + (numel + unit - 1) / unit * unit / world / 8;
      }
      EXPECT_EQ(steps[2], (world - 1) * (2 * block + 4 + 8)) << world << " ranks";
    });
  }
}

// --- skipped steps ---

TEST(OneBit, ASkippedStepAfterTheFreezeChangesNothing) {
  auto run = [](bool bad) {
    std::vector<std::string> hashes(3);
    run_ranks(3, [&](Communicator& comm) {
      Config c = make_config(1, 1, 3);
      c.optimizer.type = "OneBitAdam";
      c.optimizer.freeze_step = 2;
      Engine engine(c, large_graph(), comm, {});
      for (int s = 0; s < 7; ++s) {
        if (bad && s == 4) {
          Targets t = targets(comm.rank(), 99);
          if (comm.rank() == 1) t[2][17] = std::numeric_limits<float>::infinity();
          StepResult r = step_on(engine, t);
          EXPECT_TRUE(r.skipped);
        }
        EXPECT_FALSE(step_of(engine, s).skipped);
      }
      hashes[static_cast<size_t>(comm.rank())] = hash_of_states(engine);
    });
    EXPECT_EQ(hashes[1], hashes[0]);
    return hashes[0];
  };
  EXPECT_EQ(run(true), run(false));
}

// After the freeze, the norm is the root mean square of the norms of the ranks' own gradients.
// Reading "grad" returns the rank's own gradient.
TEST(OneBit, TheNormComesFromTheRanksOwnGradients) {
  for (int stage : {0, 1}) {
    run_ranks(3, [&](Communicator& comm) {
      Config c = make_config(stage, 1, 3);
      c.optimizer.type = "OneBitAdam";
      c.optimizer.freeze_step = 1;
      Engine engine(c, large_graph(), comm, {});
      step_of(engine, 0);
      StepResult r = step_of(engine, 1);
      double own = 0, all[3] = {};
      for (size_t i = 0; i < 3; ++i) {
        for (float g : engine.store().read_tensor(ParamId(i), "grad"))
          own += static_cast<double>(g) * g;
      }
      comm.all_gather(&own, all, sizeof own, "squares");
      EXPECT_NE(all[0], all[1]);
      EXPECT_NEAR(r.grad_norm, std::sqrt((all[0] + all[1] + all[2]) / 3), 1e-6 * r.grad_norm);
    });
  }
}

TEST(OneBit, RanksWithoutDataTakePart) {
  auto uneven = [](const Point& p) {
    return run_engines(p, config_with(p, 2), [&](Engine& engine) {
      int mine = engine.runtime().comm().rank() == 0 ? 5 : 3;
      for (int s = 0; s < mine; ++s) train_step(p, engine, s);
      engine.join();
    });
  };
  EXPECT_EQ(uneven(onebit(3)), uneven(onebit(3, 1)));
}

// --- fp16 ---

Point half(int world, int stage = 0) {
  Point p = onebit(world, stage);
  p.compute = DS_DTYPE_F16;
  return p;
}

double size_of_all(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += std::abs(static_cast<double>(v));
  return sum;
}

// Returns, for one step before the freeze and one after it, the loss, the norm, and for each tensor
// the sums of the magnitudes of gradient, momentum and master.
std::vector<double> sizes_of_two_steps(int world, DType compute, double scale) {
  std::vector<double> out;
  Point p = onebit(world, 1);
  p.compute = compute;
  p.dropout = 0;
  Config c = config_with(p, 1);
  c.loss_scale.loss_scale = scale;
  run_engines(p, c, [&](Engine& engine) {
    std::vector<double> mine;
    for (int s = 0; s < 2; ++s) {
      StepResult r = train_step(p, engine, s);
      EXPECT_FALSE(r.skipped);
      mine.insert(mine.end(), {r.loss, r.grad_norm});
      for (ParamId q : engine.store().param_names().ids()) {
        mine.push_back(size_of_all(engine.store().read_tensor(q, "grad")));
        mine.push_back(size_of_all(engine.store().read_tensor(q, "exp_avg")));
        mine.push_back(size_of_all(engine.store().read_tensor(q, "master")));
      }
    }
    if (engine.runtime().comm().rank() == 0) out = mine;
  });
  return out;
}

// Every rank's own gradient is divided by the loss scale, as the reduced gradient is.
TEST(OneBit, TheLossScaleIsDividedOutOnBothSidesOfTheFreeze) {
  for (int world : {1, 2, 3}) {
    const std::vector<double> plain = sizes_of_two_steps(world, DS_DTYPE_F32, 0);
    for (double scale : {1.0, 256.0, 3000.0}) {
      const std::vector<double> scaled = sizes_of_two_steps(world, DS_DTYPE_F16, scale);
      ASSERT_EQ(scaled.size(), plain.size());
      for (size_t i = 0; i < plain.size(); ++i) {
        // Losses and norms are nearly equal. If a tensor's gradients are nearly 0, f16 represents
        // them poorly.
        const bool step = i % (plain.size() / 2) < 2;
        EXPECT_NEAR(scaled[i], plain[i], (step ? 0.02 : 0.5) * plain[i] + 1e-4)
            << world << " ranks, " << scale << ": " << i;
      }
    }
  }
}

// Returns a configuration whose scale starts too high and grows every second step, so that steps
// are skipped before and after the freeze.
Config searching(const Point& p) {
  Config c = config_with(p);
  c.loss_scale = {.initial_scale_power = 22, .window = 2, .hysteresis = 1};
  return c;
}

struct Skipped {
  int before = 0, behind = 0;
};

Skipped half_steps(const Point& p, Engine& engine, int begin, int end) {
  Skipped skipped;
  for (int s = begin; s < end; ++s) {
    StepResult r = train_step(p, engine, s);
    if (!r.skipped) continue;
    (r.updates < kFreeze ? skipped.before : skipped.behind) += 1;
  }
  return skipped;
}

TEST(OneBit, HalfPrecisionHasTheSameBitsOnEveryLayoutDespiteSkippedSteps) {
  constexpr int kSteps = 18;
  for (int world : {2, 3}) {
    auto course = [&](const Point& p) {
      double scale = 0;
      std::string hash = run_engines(p, searching(p), [&](Engine& engine) {
        Skipped skipped = half_steps(p, engine, 0, kSteps);
        EXPECT_GE(skipped.before, 1);
        EXPECT_GE(skipped.behind, 1);
        EXPECT_GE(engine.control().updates(), kFreeze + 3);
        if (engine.runtime().comm().rank() == 0) scale = engine.control().scaler().scale;
      });
      return hash + " " + std::to_string(scale);
    };
    const std::string expected = course(half(world));
    std::vector<Point> points(3, half(world, 1));
    points[1].tier = Tier::host;
    points[1].bucket_size = 3000;
    points[2].tier = Tier::nvme;
    points[2].chaos = 5;
    for (const Point& p : points) EXPECT_EQ(course(p), expected) << p.name();
  }
}

TEST(OneBit, HalfPrecisionResumesExactlyAfterTheFreeze) {
  TempFolder folder;
  Point p = half(2), q = half(2, 1);
  const std::string straight =
      run_engines(p, searching(p), [&](Engine& engine) { half_steps(p, engine, 0, 18); });
  run_engines(p, searching(p), [&](Engine& engine) {
    half_steps(p, engine, 0, 12);
    EXPECT_GT(engine.control().updates(), kFreeze);
    engine.checkpoints().save(folder.path(), {}, {}, "");
  });
  EXPECT_EQ(run_engines(q, searching(q),
                        [&](Engine& engine) {
                          engine.checkpoints().load(folder.path(), "");
                          half_steps(q, engine, 12, 18);
                        }),
            straight);
}

// --- checkpoints ---

// Trains and saves 10 steps of p, then loads them into an engine of q and trains 10 more. Returns
// the hash of its states.
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

TEST(OneBit, ResumesExactlyOnBothSidesOfTheFreeze) {
  for (int64_t freeze_step : {5, 10, 15}) {
    const std::string straight = train(onebit(2), freeze_step, 20);
    TempFolder same, other;
    EXPECT_EQ(resumed(onebit(2), onebit(2), freeze_step, same.path()), straight) << freeze_step;
    Point elsewhere = onebit(2, 1);
    elsewhere.tier = Tier::host;
    elsewhere.bucket_size = 3000;
    EXPECT_EQ(resumed(onebit(2), elsewhere, freeze_step, other.path()), straight) << freeze_step;
  }
}

TEST(OneBit, ErrorsStartAtZeroOnAnotherNumberOfRanks) {
  TempFolder folder;
  Point more = onebit(4, 1);
  resumed(onebit(2), more, 5, folder.path());  // 4 ranks agree
}

TEST(OneBit, ADamagedFileOfErrorsIsRefused) {
  TempFolder folder;
  Point p = onebit(2);
  std::string path;
  run_engines(p, config_with(p, 1), [&](Engine& engine) {
    for (int s = 0; s < 3; ++s) train_step(p, engine, s);
    std::string made = engine.checkpoints().save(folder.path(), {}, {}, "");
    if (engine.runtime().comm().rank() == 0) path = made;
  });
  flip_byte(path + "/own-00001.safetensors", 5000);
  run_engines(p, config_with(p, 1), [&](Engine& engine) {
    expect_names(message_of([&] { engine.checkpoints().load(path, ""); }, DS_ERROR_CORRUPT),
                 {"own-00001.safetensors"});
  });
}

// --- refusals ---

std::string refusal(const char* text) {
  try {
    parse_config(Json::parse(text), 2);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OneBit, InvalidConfigurationsAreRefused) {
  const struct {
    const char *config, *says;
  } cases[] = {
      {R"({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": -1}}})", "freeze_step"},
      {R"({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 0}}})", "freeze_step"},
      {R"({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 2.5}}})", "freeze_step"},
      {R"({"optimizer": {"type": "OneBitAdam", "params": {"adam_w_mode": false}}})",
       "not a parameter of"},
      {R"({"optimizer": {"type": "AdamW", "params": {"freeze_step": 5}}})", "not a parameter of"},
      {R"({"optimizer": {"type": "OneBitAdam"}, "zero_optimization": {"stage": 2}})",
       "needs zero_optimization.stage 0 or 1, got 2"},
      {R"({"optimizer": {"type": "OneBitAdam"}, "zero_optimization": {"stage": 3}})",
       "needs zero_optimization.stage 0 or 1, got 3"},
  };
  for (const auto& c : cases) {
    Json document = Json::parse(c.config);
    document.set("train_batch_size", 2);
    EXPECT_NE(refusal(document.dump().c_str()).find(c.says), std::string::npos)
        << c.config << ": " << refusal(document.dump().c_str());
  }
}

// Configuration files in use have this form.
TEST(OneBit, AcceptsConfigurationsOfRealFiles) {
  Config c = parse_config(
      Json::parse(R"({"train_batch_size": 96, "optimizer": {"type": "OnebitAdam", "params": {
      "lr": 3e-05, "freeze_step": 400, "weight_decay": 0.0, "bias_correction": false, "cuda_aware": true,
      "comm_backend_name": "mpi"}}})"),
      2);
  EXPECT_EQ(c.optimizer.type, "OneBitAdam");
  EXPECT_EQ(c.optimizer.freeze_step, 400);
}

TEST(OneBit, DelegatesAndWrittenGradientsAreRefused) {
  auto comm = create_communicator("self", {});
  Point p = onebit(1);
  expect_names(message_of([&] { DelegateEngine(config_with(p), *comm, {}); }, DS_ERROR_UNSUPPORTED),
               {"needs a graph"});
  Engine engine(config_with(p, 1), graph_of(p), *comm, {});
  train_step(p, engine, 0);
  std::vector<float> values(static_cast<size_t>(engine.store().local_numel(ParamId(0))));
  train_step_in_pieces(p, engine, 1, [&] {
    expect_names(message_of([&] { engine.store().write_tensor(ParamId(0), "grad", values); },
                            DS_ERROR_UNSUPPORTED),
                 {"this rank's own"});
  });
}

}  // namespace
}  // namespace ds::test::onebit
