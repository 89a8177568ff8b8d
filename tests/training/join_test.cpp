// Tests ranks whose data end after different numbers of steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

struct Joined {
  std::string hash;
  std::vector<double> losses;
};

// Trains a run in which rank r has data for `lengths[r]` steps, then two steps on all ranks.
Joined train_uneven(const Point& p, const std::vector<int>& lengths) {
  Joined out;
  run_ranks(p.world, [&](Communicator& comm) {
    EngineOptions options;
    options.threads = p.threads;
    set_device(options, p);
    Engine engine(config_of(p), graph_of(p), comm, options);
    std::vector<double> losses;
    int mine = lengths[static_cast<size_t>(comm.rank())];
    for (int s = 0; s < mine; ++s) losses.push_back(train_step(p, engine, s).loss);
    int64_t steps = engine.join();
    EXPECT_EQ(mine + steps, *std::max_element(lengths.begin(), lengths.end()));
    EXPECT_EQ(engine.control().steps(), mine + steps);
    for (int s = 0; s < 2; ++s)
      // These steps belong to a new epoch.
      losses.push_back(train_step(p, engine, 10 + s).loss);
    // Under compressed optimizers, each rank keeps its own gradients.
    const bool own = engine.runtime().config().optimizer.compressed();
    std::string hash = own ? hash_of_states(engine) : state_hash(engine.store());
    if (comm.rank() == 0) out = {hash, losses};
  });
  return out;
}

TEST(Join, UnevenRanksHaveTheSameBitsOnEveryLayout) {
  const std::vector<int> lengths = {4, 2, 3, 0};
  Point plain;
  plain.world = 4;
  plain.leaves = 8;
  Joined expected = train_uneven(plain, lengths);
  EXPECT_NE(expected.hash, train_uneven(plain, {4, 4, 4, 4}).hash);
  std::vector<Point> points = {{.stage = 1, .separate = 1},
                               {.stage = 2, .tier = Tier::nvme, .threads = 2, .separate = 0},
                               {.stage = 3, .tier = Tier::host, .nodes = 2},
                               {.stage = 3, .tier = Tier::nvme, .mics = 2, .chaos = 5}};
  for (Point& p : points) {
    p.world = 4;
    p.leaves = 8;
    EXPECT_EQ(train_uneven(p, lengths).hash, expected.hash) << p.name();
  }
}

// A rank without data contributes no rows to an embedding that is reduced as rows.
TEST(Join, RowsMayComeFromUnevenRanks) {
  const std::vector<int> lengths = {0, 3, 1, 2};
  Point p{.stage = 2, .world = 4, .leaves = 8, .vocab = 400, .tied = false};
  std::string expected = train_uneven(p, lengths).hash;
  p.sparse = true;
  for (int64_t nodes : {1, 2}) {
    p.nodes = nodes;
    EXPECT_EQ(train_uneven(p, lengths).hash, expected) << p.name();
    p.chaos = 2;
  }
}

// If no rank has data, the update is skipped, on every tier and in any order of queues.
TEST(Join, AStepWithoutLeavesChangesNothing) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      for (const char* optimizer : {"AdamW", "SGD"}) {
        Point p{.stage = stage, .tier = tier, .optimizer = optimizer};
        if (stage % 2 == 1) p.chaos = 3;
        if (stage % 2 == 0) p.separate = 3;
        run_ranks(2, [&](Communicator& comm) {
          EngineOptions options;
          set_device(options, p);
          Engine engine(config_of(p), graph_of(p), comm, options);
          train_step(p, engine, 0);
          auto state = [&] {
            std::vector<std::vector<float>> out;
            for (std::string kind : engine.store().state_kinds()) {
              for (size_t i = 0; i < engine.store().param_names().size(); ++i)
                out.push_back(engine.store().read_tensor(ParamId(i), kind));
            }
            for (size_t i = 0; i < engine.store().param_names().size(); ++i)
              out.push_back(engine.store().read_tensor(ParamId(i), "param"));
            return out;
          };
          auto before = state();
          EXPECT_EQ(engine.join(), 0);
          EXPECT_EQ(state(), before) << p.name();
        });
      }
    }
  }
}

// With error feedback, ranks without data keep the errors that they have not sent, on every layout
// with the same levels. A step without leaves changes no error.
TEST(Join, QuantizationErrorsAreKept) {
  const std::vector<int> lengths = {4, 1, 3, 0};
  for (int64_t nodes : {1, 2}) {
    Point p{
        .stage = 2, .world = 4, .nodes = nodes, .gradient_bits = 4, .err_beta = 0.8, .leaves = 8};
    std::string expected = train_uneven(p, lengths).hash;
    Point other = p;
    other.stage = 3;
    other.tier = Tier::host;
    other.bucket_size = 4000;
    other.chaos = 4;
    EXPECT_EQ(train_uneven(other, lengths).hash, expected) << other.name();
    std::set<std::string> hashes;
    for (int ends : {0, 2}) {
      run_ranks(p.world, [&](Communicator& comm) {
        Engine engine(config_of(p), graph_of(p), comm, {});
        for (int s = 0; s < 3; ++s) {
          train_step(p, engine, s);
          for (int k = 0; k < ends; ++k) EXPECT_EQ(engine.join(), 0);
        }
        train_step(p, engine, 3);
        std::string hash = state_hash(engine.store());
        if (comm.rank() == 0) hashes.insert(hash);
      });
    }
    EXPECT_EQ(hashes.size(), 1u) << p.name();
  }
}

// The first step after a freeze begins by gathering parts that every rank has updated, even a rank
// without data.
TEST(Join, RanksMayRunOutOfDataAtTheFreezeOfOneBitOptimizers) {
  for (const char* optimizer : {"OneBitAdam", "OneBitLamb"}) {
    for (const std::vector<int>& lengths : {std::vector<int>{6, 3}, std::vector<int>{3, 4}}) {
      Point p{.optimizer = optimizer};
      const Joined expected = train_uneven(p, lengths);
      p.stage = 1;
      for (int64_t size : {int64_t{500000000}, int64_t{3000}}) {
        p.bucket_size = size;
        const Joined joined = train_uneven(p, lengths);
        EXPECT_EQ(joined.losses, expected.losses) << p.name();
        EXPECT_EQ(joined.hash, expected.hash) << p.name();
      }
    }
  }
}

// The mean gradient has the same scale before and after the update, no matter which ranks have
// data.
TEST(Join, GradientsAreMeansOfTheLeavesOfRanksWithData) {
  for (int stage : {0, 2}) {
    for (int64_t leaves : {2, 4}) {
      Point p{.stage = stage, .leaves = leaves, .compute = DS_DTYPE_F32};
      run_ranks(2, [&](Communicator& comm) {
        Engine engine(config_of(p), graph_of(p), comm, {});
        if (comm.rank() == 0) {
          std::vector<float> before;
          double norm = 0;
          StepResult r = train_step_in_pieces(p, engine, 0, [&] {
            before = engine.store().read_local(ParamId(0), "grad");
            for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
              for (float g : engine.store().read_local(ParamId(i), "grad"))
                norm += double(g) * double(g);
            }
          });
          EXPECT_EQ(engine.store().read_local(ParamId(0), "grad"), before);
          EXPECT_NE(before, std::vector<float>(before.size(), 0.0f));
          // At stage 0 every rank has all gradients.
          if (stage == 0) {
            EXPECT_NEAR(std::sqrt(norm), r.grad_norm, 1e-6 * r.grad_norm);
          }
        }
        engine.join();
      });
    }
  }
}

// Means are taken over the leaves of the ranks that have data.
TEST(Join, ResultsAreMeansOfTheLeavesOfRanksWithData) {
  Point one{.world = 1, .compute = DS_DTYPE_F32, .dropout = 0};
  one.leaves = 1;
  Point two = one;
  two.world = two.leaves = 2;
  StepResult alone, joined;
  run_ranks(1, [&](Communicator& comm) {
    Engine engine(config_of(one), graph_of(one), comm, {});
    alone = train_step(one, engine, 0);
  });
  run_ranks(2, [&](Communicator& comm) {
    Engine engine(config_of(two), graph_of(two), comm, {});
    if (comm.rank() == 0) joined = train_step(two, engine, 0);
    engine.join();
  });
  EXPECT_EQ(joined.loss, alone.loss);
  EXPECT_EQ(joined.grad_norm, alone.grad_norm);
}

// Trains a run whose host sets a rate and a weight decay before each step. Rank r has data for
// lengths[r] steps, and then sets those of one more step before it joins. Every copy of every part
// must be updated with the current rate, no matter which ranks have data. Proves {engine.join.set}.
std::vector<float> train_with_rates(const Point& p, const std::vector<int>& lengths) {
  std::vector<std::vector<float>> of_ranks(lengths.size());
  run_ranks(p.world, [&](Communicator& comm) {
    Engine engine(config_of(p), graph_of(p), comm, {});
    auto set = [&](int step) {
      engine.set("lr", 0.01 * step);
      engine.set("param_groups[0].weight_decay", 0.1 * step);
    };
    const auto rank = static_cast<size_t>(comm.rank());
    set(1);
    for (int s = 0; s < lengths[rank]; ++s) {
      train_step(p, engine, s);
      set(s + 2);
    }
    engine.join();
    const int last = *std::max_element(lengths.begin(), lengths.end());
    EXPECT_EQ(engine.control().get("lr"), 0.01 * (lengths[rank] == last ? last + 1 : last));
    set(last + 1);
    train_step(p, engine, last);
    for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
      const std::vector<float> values = engine.store().read_tensor(ParamId(i), "master");
      of_ranks[rank].insert(of_ranks[rank].end(), values.begin(), values.end());
    }
  });
  for (const std::vector<float>& values : of_ranks) EXPECT_EQ(values, of_ranks[0]) << p.name();
  return of_ranks[0];
}

TEST(Join, RanksWithoutDataUseTheRatesThatOthersSet) {
  for (const char* optimizer : {"SGD", "Muon", "AdamW"}) {
    Point p{.compute = DS_DTYPE_F32, .optimizer = optimizer};
    p.groups = true;
    const std::vector<float> expected = train_with_rates(p, {5, 2});
    for (int stage : {1, 3}) {
      p.stage = stage;
      EXPECT_EQ(train_with_rates(p, {5, 2}), expected) << p.name();
    }
    p.stage = 0;
    p.world = 4;
    train_with_rates(p, {1, 3, 5, 4});
  }
}

TEST(Join, DifferentRatesOfARankWithoutDataAreRefused) {
  run_ranks(2, [&](Communicator& comm) {
    Point p;
    Engine engine(config_of(p), graph_of(p), comm, {});
    if (comm.rank() == 0) engine.set("lr", 0.25);
    const std::string message = message_of(
        [&] {
          if (comm.rank() == 0) train_step(p, engine, 0);
          engine.join();
        },
        DS_ERROR_CONFIG);
    expect_names(message, {"ds_engine_join", "param_groups[0].lr 0.25", "on rank 0", "on rank 1"});
  });
}

TEST(Join, ANanOfOneRankIsNamedOnAll) {
  run_ranks(2, [&](Communicator& comm) {
    Engine engine(make_config(3, 1, 2), make_mlp(2, 32, 8), comm, {});
    std::vector<float> x(8 * 32, std::numeric_limits<float>::quiet_NaN()), target(x.size(), 1.0f);
    auto numel = static_cast<int64_t>(x.size());
    InputView views[] = {{x.data(), DS_DTYPE_F32, numel}, {target.data(), DS_DTYPE_F32, numel}};
    if (comm.rank() == 0) {
      EXPECT_TRUE(engine.train_batch(views).skipped);
    }
    EXPECT_EQ(engine.join(), comm.rank() == 0 ? 0 : 1);
    EXPECT_TRUE(engine.control().last().skipped);
    EXPECT_NE(engine.control().last().reason.find("first tensor with NaN"), std::string::npos);
    EXPECT_EQ(engine.control().updates(), 0);
    std::fill(x.begin(), x.end(), 0.5f);
    // The engine is still usable.
    EXPECT_GT(engine.train_batch(views).loss, 0);
  });
}

}  // namespace
}  // namespace ds::test
