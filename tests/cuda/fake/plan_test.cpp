// A plan for a GPU, here of the fake driver, equals the engine's plan, whether or not the GPU is
// present.
#include <gtest/gtest.h>

#include <cstdint>

#include "run/plan_fit.h"
#include "support/errors.h"
#include "support/fake_cuda.h"
#include "support/plan_draw.h"

namespace ds::test {
namespace {

TEST(FakeCudaPlan, EqualsTheEnginesPlan) {
  if (!FakeCuda::find()) GTEST_SKIP() << "built without the plugin";
  uint64_t taken = 0;
  const uint64_t draws = plan_draws(12);
  for (uint64_t seed = 0; seed < draws && !testing::Test::HasFailure(); ++seed)
    taken += plan_is_the_engines(seed, seed % 2 == 0 ? "cuda" : "cuda:0") ? 1 : 0;
  EXPECT_GT(taken, draws / 3);
}

TEST(FakeCudaPlan, KnowsTheMemoryOfAPresentDevice) {
  if (!FakeCuda::find()) GTEST_SKIP() << "built without the plugin";
  const PlanSource source{Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "device": "cuda",
      "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2}, "run": {"sequence": 8}})"),
                          nullptr, 0, 1};
  const PlanFit fit = plan_fit(source, make_plan(source));
  EXPECT_TRUE(fit.fits());
  EXPECT_EQ(fit.unknown, "");
  expect_names(fit.text(), {"of memory of device cuda (1 rank), which has "});
}

}  // namespace
}  // namespace ds::test
