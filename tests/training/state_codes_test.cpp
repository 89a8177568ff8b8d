// Tests engines whose states are 8-bit codes: their memory, reading and writing them by a host, and
// checkpoints with f32 states. optimizers_test.cpp tests equal bits over layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "engine/checkpoints.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::state_codes_test {
namespace {

Point coded(int stage, Tier tier, int world) {
  Point p;
  p.states = DS_DTYPE_U8;
  p.stage = stage;
  p.tier = tier;
  p.world = world;
  p.bucket_size = 3000;
  return p;
}

// Each element needs a byte, and each block one more for its scale. If codes are on files, scales
// stay in memory.
TEST(StateCodesEngine, NeedOneBytePerElement) {
  for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const Point p = coded(2, tier, 2);
    run_ranks(2, [&](Communicator& comm) {
      EngineOptions options;
      set_device(options, p);
      Engine engine(config_of(p), graph_of(p), comm, options);
      int64_t elements = engine.plan().zero.layout.numel() / 2;
      auto bytes = engine.store().state_bytes();
      for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
        const Tier near = tier == Tier::device ? tier : Tier::host;
        EXPECT_EQ((bytes[{tier, kind}] + (near == tier ? 0 : bytes[{near, kind}])),
                  elements + elements / 256);
        if (near == tier) continue;
        EXPECT_EQ((bytes[{near, kind}]), elements / 256);
      }
    });
  }
}

// After the first step from zero states, m = (1 - beta1) g and v = (1 - beta2) g^2, up to the
// precision of a stochastically rounded code.
TEST(StateCodesEngine, StoreMomentsWithinThePrecisionOfTheirCodes) {
  const Point p = coded(1, Tier::device, 2);
  run_ranks(2, [&](Communicator& comm) {
    EngineOptions options;
    set_device(options, p);
    const Config config = config_of(p);
    Engine engine(config, graph_of(p), comm, options);
    train_step(p, engine, 0);
    const double b1 = 1 - config.optimizer.beta1, b2 = 1 - config.optimizer.beta2;
    int compared = 0;
    for (size_t n = 0; n < engine.store().param_names().size(); ++n) {
      std::vector<float> m = engine.store().read_tensor(ParamId(n), "exp_avg"),
                         v = engine.store().read_tensor(ParamId(n), "exp_avg_sq");
      float most = 0;
      for (float x : m) most = std::max(most, std::abs(x));
      for (size_t e = 0; e < m.size(); ++e) {
        if (std::abs(m[e]) < most / 256 || most == 0) continue;
        const double g = static_cast<double>(m[e]) / b1,
                     ratio = static_cast<double>(v[e]) / (b2 * g * g);
        ASSERT_GT(ratio, 0.6) << n << " " << e;
        ASSERT_LT(ratio, 1.6) << n << " " << e;
        ++compared;
      }
    }
    EXPECT_GT(compared, 1000);
  });
}

TEST(StateCodesEngine, AreReadAndWrittenAsF32) {
  for (Tier tier : {Tier::device, Tier::nvme}) {
    const Point p = coded(3, tier, 3);
    run_ranks(3, [&](Communicator& comm) {
      EngineOptions options;
      set_device(options, p);
      Engine engine(config_of(p), graph_of(p), comm, options);
      for (int s = 0; s < 3; ++s) train_step(p, engine, s);
      StateStore& store = engine.store();
      double most = 0;
      for (size_t n = 0; n < store.param_names().size(); ++n) {
        for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
          // Values that were read can be written back without change.
          const std::vector<float> held = store.read_tensor(ParamId(n), kind);
          store.write_tensor(ParamId(n), kind, held);
          ASSERT_EQ(store.read_tensor(ParamId(n), kind), held)
              << store.param_names()[ParamId(n)] << " " << kind;
          for (float x : held) most = std::max(most, std::abs(static_cast<double>(x)));
          // A value without an exact code becomes a neighbouring one.
          std::vector<float> values;
          for (size_t e = 0; e < held.size(); ++e)
            values.push_back(0.01f + 0.001f * static_cast<float>(e % 97));
          store.write_tensor(ParamId(n), kind, values);
          std::vector<float> got = store.read_tensor(ParamId(n), kind);
          for (size_t e = 0; e < got.size(); ++e) ASSERT_NEAR(got[e], values[e], values[e] / 16);
        }
      }
      EXPECT_GT(most, 1e-4);
    });
  }
}

// A checkpoint always has f32 states, so runs with codes and without continue from each other's
// folders.
TEST(StateCodesEngine, ResumeFromAndSaveF32States) {
  TempFolder folder;
  Point p = coded(1, Tier::device, 2);
  run_ranks(2, [&](Communicator& comm) {
    Point f32 = p;
    f32.states = DS_DTYPE_F32;
    EngineOptions options;
    set_device(options, p);
    Engine first(config_of(f32), graph_of(p), comm, options);
    for (int s = 0; s < 3; ++s) train_step(f32, first, s);
    const std::string path = first.checkpoints().save(folder.path());
    Engine second(config_of(p), graph_of(p), comm, options);
    second.checkpoints().load(path);
    for (size_t n = 0; n < first.store().param_names().size(); ++n) {
      EXPECT_EQ(second.store().read_tensor(ParamId(n), "master"),
                first.store().read_tensor(ParamId(n), "master"));
      std::vector<float> want = first.store().read_tensor(ParamId(n), "exp_avg_sq"),
                         got = second.store().read_tensor(ParamId(n), "exp_avg_sq");
      for (size_t e = 0; e < want.size(); ++e) ASSERT_NEAR(got[e], want[e], want[e] / 16 + 1e-16);
    }
  });
}

TEST(StateCodesEngine, GranulesThatAreNotWholeBlocksAreRefused) {
  const Point p = coded(1, Tier::device, 2);
  PlanPrograms programs;
  programs.row_granules = true;
  expect_names(
      message_of([&] { compile_plan(graph_of(p), config_of(p), 0, 2, Machine{}, true, programs); },
                 DS_ERROR_UNSUPPORTED),
      {"optimizer.states", "multiple of 256 elements", "has 24"});
}

}  // namespace
}  // namespace ds::test::state_codes_test
