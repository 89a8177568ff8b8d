// Tests steps whose update is skipped because of NaN or infinity.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "checkpoint/agree.h"
#include "core/base/random.h"
#include "engine/engine.h"
#include "optim/schedule.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<Point> layouts() {
  return {{.stage = 0},
          {.stage = 1, .chaos = 1},
          {.stage = 2, .tier = Tier::host, .chaos = 2},
          {.stage = 3, .separate = 1, .compute = DS_DTYPE_F32},
          {.stage = 2, .tier = Tier::host, .separate = 2},
          {.stage = 3, .world = 4, .mics = 2, .leaves = 8}};
}

std::vector<std::vector<float>> numbers_of(Engine& engine) {
  std::vector<std::vector<float>> out;
  std::vector<std::string> kinds = engine.store().state_kinds();
  kinds.push_back("param");
  for (const std::string& kind : kinds) {
    for (size_t i = 0; i < engine.store().param_names().size(); ++i)
      out.push_back(engine.store().read_tensor(ParamId(i), kind));
  }
  return out;
}

// The engine must use the written gradient: the model's own gradients are finite and would be
// applied.
TEST(Skipped, ANanWrittenAsGradientIsNamedAndChangesNothing) {
  for (const Point& p : layouts()) {
    run_ranks(p.world, [&](Communicator& comm) {
      EngineOptions options;
      set_device(options, p);
      Engine engine(config_of(p), graph_of(p), comm, options);
      train_step(p, engine, 0);
      auto before = numbers_of(engine);
      const std::string& name = engine.store().param_names()[2];
      auto [first, count] = engine.store().local_range(ParamId(2));
      for (bool local : {false, true}) {
        bool mine = !local || (first == 0 && count > 0);
        int64_t step = engine.control().steps();
        StepResult result = train_step_in_pieces(p, engine, 1, [&] {
          std::vector<float> grad = engine.store().read_tensor(ParamId(2), "grad");
          grad[0] = kNan;
          if (local && mine)
            engine.store().write_local(ParamId(2), "grad",
                                       {grad.data(), static_cast<size_t>(count)});
          if (!local) engine.store().write_tensor(ParamId(2), "grad", grad);
        });
        EXPECT_TRUE(result.skipped);
        expect_names(result.reason, {fmt::format("step {} is skipped", step + 1),
                                     mine ? "gradient written to '" + name : "none on this rank"});
        EXPECT_EQ(engine.control().steps(), step + 1);
        EXPECT_EQ(engine.control().updates(), 1);
        EXPECT_EQ(numbers_of(engine), before) << p.name();
      }
      StepResult two = train_step_in_pieces(p, engine, 1, [&] {
        std::vector<float> grad = engine.store().read_tensor(ParamId(3), "grad"),
                           bad(grad.size(), kNan);
        engine.store().write_tensor(
            ParamId(2), "grad",
            std::vector<float>(engine.store().read_tensor(ParamId(2), "grad").size(), kNan));
        engine.store().write_tensor(ParamId(3), "grad", bad);
        engine.store().write_tensor(ParamId(3), "grad", grad);
      });
      expect_names(two.reason, {"gradient written to '" + name});
      // If a gradient is written again before the update, the last value applies.
      train_step_in_pieces(p, engine, 1, [&] {
        std::vector<float> grad = engine.store().read_tensor(ParamId(2), "grad"),
                           bad(grad.size(), kNan);
        engine.store().write_tensor(ParamId(2), "grad", bad);
        engine.store().write_tensor(ParamId(2), "grad", grad);
      });
      EXPECT_EQ(engine.control().updates(), 2);
      EXPECT_FALSE(engine.control().last().skipped);
      EXPECT_EQ(engine.control().last().reason, "");
      EXPECT_NE(numbers_of(engine), before);
    });
  }
}

// If the model computes NaN, the message names the first tensor with NaN, for any order and any
// tier of the update. The next step has the bits that it would have without the NaN.
TEST(Skipped, ANanOfTheModelIsNamedAndChangesNothing) {
  for (Point p : layouts()) {
    for (Tier tier : {p.tier, Tier::nvme}) {
      p.tier = tier;
      p.dropout = 0;
      run_ranks(p.world, [&](Communicator& comm) {
        EngineOptions options;
        set_device(options, p);
        Engine engine(config_of(p), graph_of(p), comm, options),
            plain(config_of(p), graph_of(p), comm, {});
        train_step(p, engine, 0);
        train_step(p, plain, 0);
        std::vector<float> good = engine.store().read_tensor(ParamId(2), "master"),
                           bad(good.size(), kNan);
        engine.store().write_tensor(ParamId(2), "master", bad);
        expect_names(train_step(p, engine, 1).reason, {"step 2 is skipped", "in micro-step 0"});
        engine.store().write_tensor(ParamId(2), "master", good);
        EXPECT_EQ(numbers_of(engine), numbers_of(plain)) << p.name();
        train_step(p, engine, 1);
        train_step(p, plain, 1);
        EXPECT_EQ(state_hash(engine.store()), state_hash(plain.store())) << p.name();
      });
    }
  }
}

// In random runs, some steps are skipped, saved and resumed. Parameters, states, learning rate and
// bias corrections equal those of a run that never saw the skipped batches. With dropout, whose
// random numbers advance even in skipped steps, the resumed run equals the uninterrupted one.
TEST(Skipped, ARunContinuesAsIfTheStepHadNotHappened) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RandomStream random{seed, 0, 0, 0};
    std::vector<int64_t> bad;
    for (int64_t step = 0; step < 6; ++step) {
      if (random.block(static_cast<uint64_t>(step))[0] % 3 == 0) bad.push_back(step);
    }
    Point p{.stage = static_cast<int>(seed % 4), .tier = seed % 2 ? Tier::host : Tier::device};
    for (double dropout : {0.0, 0.2}) {
      p.dropout = dropout;
      run_ranks(p.world, [&](Communicator& comm) {
        Config config = config_of(p);
        config.scheduler = make_schedule("WarmupLR", {{"warmup_num_steps", 8}});
        auto skip = [&](Engine& engine, int64_t step) {
          StepResult result = train_step_in_pieces(p, engine, step, [&] {
            std::vector<float> grad = engine.store().read_tensor(ParamId(1), "grad");
            grad.back() = kNan;
            engine.store().write_tensor(ParamId(1), "grad", grad);
          });
          EXPECT_TRUE(result.skipped);
        };
        std::string folder = on_root(comm, "folder", [] { return scratch_folder() + "/skips"; });
        Engine engine(config, graph_of(p), comm, {}), plain(config, graph_of(p), comm, {});
        auto resumed = std::make_unique<Engine>(config, graph_of(p), comm, EngineOptions{});
        for (int64_t step = 0; step < 6; ++step) {
          bool skipped = std::find(bad.begin(), bad.end(), step) != bad.end();
          for (Engine* e : {&engine, resumed.get()}) {
            if (skipped) {
              skip(*e, step);
            } else {
              train_step(p, *e, step);
            }
          }
          if (!skipped) train_step(p, plain, step);
          if (step % 2 == 1) {
            resumed->checkpoints().save(folder);
            resumed = std::make_unique<Engine>(config, graph_of(p), comm, EngineOptions{});
            resumed->checkpoints().load(folder);
          }
        }
        EXPECT_EQ(engine.control().steps(), 6);
        EXPECT_EQ(engine.control().updates(), 6 - static_cast<int64_t>(bad.size()));
        EXPECT_EQ(resumed->control().updates(), engine.control().updates());
        EXPECT_EQ(numbers_of(*resumed), numbers_of(engine)) << p.name() << " seed " << seed;
        if (dropout == 0) {
          EXPECT_EQ(numbers_of(plain), numbers_of(engine)) << p.name() << " seed " << seed;
        }
      });
    }
  }
}

}  // namespace
}  // namespace ds::test
