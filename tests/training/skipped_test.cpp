// Steps that NaN or infinity make the update leave out.
#include <gtest/gtest.h>

#include <limits>

#include "engine/engine.h"
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
          {.stage = 3, .compute = DS_DTYPE_F32},
          {.stage = 3, .world = 4, .mics = 2, .leaves = 8}};
}

std::vector<std::vector<float>> numbers_of(Engine& engine) {
  std::vector<std::vector<float>> out;
  std::vector<std::string> kinds = engine.state_kinds();
  kinds.push_back("param");
  for (const std::string& kind : kinds) {
    for (size_t i = 0; i < engine.param_names().size(); ++i)
      out.push_back(engine.read_tensor(ParamId(i), kind));
  }
  return out;
}

// The gradients that the model computes are good: were they made again, the update would take place.
TEST(Skipped, ANanWrittenAsGradientIsNamedAndChangesNothing) {
  for (const Point& p : layouts()) {
    run_ranks(p.world, [&](Communicator& comm) {
      EngineOptions options;
      options.chaos_seed = p.chaos;
      Engine engine(config_of(p), graph_of(p), comm, options);
      train_step(p, engine, 0);
      auto before = numbers_of(engine);
      const std::string& name = engine.param_names()[2];
      auto [first, count] = engine.local_range(ParamId(2));
      for (bool local : {false, true}) {
        bool mine = !local || (first == 0 && count > 0);
        std::string message = message_of(
            [&] {
              train_step_in_pieces(p, engine, 1, [&] {
                std::vector<float> grad = engine.read_tensor(ParamId(2), "grad");
                grad[0] = kNan;
                if (local && mine)
                  engine.write_local(ParamId(2), "grad", {grad.data(), static_cast<size_t>(count)});
                if (!local) engine.write_tensor(ParamId(2), "grad", grad);
              });
            },
            DS_ERROR_NUMERIC);
        expect_names(message,
                     {"step 2 is skipped", mine ? "gradient written to '" + name : "none on this rank"});
        EXPECT_EQ(engine.steps_taken(), 1);
        EXPECT_EQ(numbers_of(engine), before) << p.name();
      }
      expect_names(message_of(
                       [&] {
                         train_step_in_pieces(p, engine, 1, [&] {
                           std::vector<float> grad = engine.read_tensor(ParamId(3), "grad"),
                                              bad(grad.size(), kNan);
                           engine.write_tensor(
                               ParamId(2), "grad",
                               std::vector<float>(engine.read_tensor(ParamId(2), "grad").size(), kNan));
                           engine.write_tensor(ParamId(3), "grad", bad);
                           engine.write_tensor(ParamId(3), "grad", grad);
                         });
                       },
                       DS_ERROR_NUMERIC),
                   {"gradient written to '" + name});
      train_step_in_pieces(p, engine, 1, [&] {  // written again before the update, it is as good as never
        std::vector<float> grad = engine.read_tensor(ParamId(2), "grad"), bad(grad.size(), kNan);
        engine.write_tensor(ParamId(2), "grad", bad);
        engine.write_tensor(ParamId(2), "grad", grad);
      });
      EXPECT_EQ(engine.steps_taken(), 2);
      EXPECT_NE(numbers_of(engine), before);
    });
  }
}

// A model that computes NaN: its first tensor is named, in whatever order and from whatever tier the update
// would have begun, and the step after it has the bits that it would have had.
TEST(Skipped, ANanOfTheModelIsNamedAndChangesNothing) {
  for (Point p : layouts()) {
    for (Tier tier : {p.tier, Tier::nvme}) {
      p.tier = tier;
      p.dropout = 0;
      run_ranks(p.world, [&](Communicator& comm) {
        EngineOptions options;
        options.chaos_seed = p.chaos;
        Engine engine(config_of(p), graph_of(p), comm, options), plain(config_of(p), graph_of(p), comm, {});
        train_step(p, engine, 0);
        train_step(p, plain, 0);
        std::vector<float> good = engine.read_tensor(ParamId(2), "master"), bad(good.size(), kNan);
        engine.write_tensor(ParamId(2), "master", bad);
        std::string message = message_of([&] { train_step(p, engine, 1); }, DS_ERROR_NUMERIC);
        expect_names(message, {"step 2 is skipped", "in micro-step 0"});
        engine.write_tensor(ParamId(2), "master", good);
        EXPECT_EQ(numbers_of(engine), numbers_of(plain)) << p.name();
        train_step(p, engine, 1);
        train_step(p, plain, 1);
        EXPECT_EQ(state_hash(engine), state_hash(plain)) << p.name();
      });
    }
  }
}

}  // namespace
}  // namespace ds::test
