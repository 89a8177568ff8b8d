#include "run/plan_fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "run/setup.h"
#include "support/errors.h"
#include "support/plan_draw.h"

namespace ds::test {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(PlanFit, APlanEqualsTheEnginesOnEveryDevice) {
  uint64_t taken = 0;
  const uint64_t draws = plan_draws(10);
  for (uint64_t seed = 0; seed < draws && !testing::Test::HasFailure(); ++seed) {
    for (const char* device : {"cpu", "separate", "chaos"})
      taken += plan_is_the_engines(3 * seed + static_cast<uint64_t>(device[0] % 3), device) ? 1 : 0;
  }
  EXPECT_GT(taken, draws) << "of " << 3 * draws;
}

PlanSource gpt(const std::string& more, int ranks = 1) {
  Json document = Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
      "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 4, "vocab": 300},
      "run": {"sequence": 512, "sample_tokens": 16}})");
  merge_patch(document, Json::parse(more));
  return {document, nullptr, 0, ranks};
}

int64_t device_bytes(const Plan& plan) { return plan.memory.total(Tier::device); }

// The caches for a sample, which are as long as the sample, use the memory of a step's activations.
TEST(PlanFit, SampledTextNeedsNoMemoryWhileTraining) {
  const MadePlan with = make_plan(gpt("{}")),
                 without = make_plan(gpt(R"({"run": {"sample_tokens": 0}})"));
  ASSERT_TRUE(with.plan.decode);
  EXPECT_EQ(with.plan.decode->positions, 16 + kSamplePrompt);
  const int64_t logits = 300 * 2, tokens = 2 * 64 * 4;
  EXPECT_LE(device_bytes(with.plan), device_bytes(without.plan) + logits + tokens + 3 * 64);
  const int64_t caches = 2 * 2 * 64 * with.plan.decode->positions * 2;
  EXPECT_GE(with.plan.program(ProgramKind::decode).arenas[0].transient, caches);
}

TEST(PlanFit, NamesBothNumbersAndASolution) {
  PlanSource source = gpt("{}", 2);
  MadePlan made = make_plan(source);
  PlanFit fit = plan_fit(source, made);
  EXPECT_TRUE(fit.fits());
  expect_names(fit.text(),
               {"fits: needs ", " GiB of host memory (2 ranks), this machine has ", "(available "});
  EXPECT_TRUE(fit.help.empty());
  const int64_t limit = device_bytes(made.plan) * 3 / 5;
  source = gpt(fmt::format(R"({{"memory_budget": {{"device": {}}}}})", limit), 2);
  made = make_plan(source);
  fit = plan_fit(source, made);
  EXPECT_FALSE(fit.fits());
  expect_names(fit.text(), {"does not fit: needs ", " GiB per rank, but memory_budget.device is ",
                            "it fits with "});
  EXPECT_EQ(fit.json().find("fits")->boolean(), false);
  EXPECT_EQ(fit.json().find("limits")->array()[0].find("has")->integer(), limit);
}

// If the advice recommends stage 3, the configuration with this stage must fit.
TEST(PlanFit, AdvisedConfigurationsFit) {
  const int64_t whole = device_bytes(make_plan(gpt("{}", 2)).plan);
  for (int64_t part = 1; part < 10; part += 2) {
    const PlanSource source =
        gpt(fmt::format(R"({{"memory_budget": {{"device": {}}}}})", whole * part / 10), 2);
    const MadePlan made = make_plan(source);
    const PlanFit fit = plan_fit(source, made);
    for (const std::string& help : fit.help) {
      if (help.find("zero_optimization.stage 3 (") == help.npos) continue;
      PlanSource changed = source;
      merge_patch(changed.document, Json::parse(R"({"zero_optimization": {"stage": 3}})"));
      EXPECT_TRUE(plan_fit(changed, make_plan(changed)).fits()) << help;
    }
    EXPECT_EQ(fit.fits(), fits(made.plan.memory, made.config.memory_budget));
  }
}

TEST(PlanFit, HostMemoryIncludesAllRanks) {
  const HostMemory has{24 * kGiB, {}, 22 * kGiB};
  EXPECT_TRUE(host_limit(3 * kGiB, 8, has).holds());
  const MemoryLimit beyond = host_limit(3 * kGiB + 1, 8, has);
  EXPECT_FALSE(beyond.holds());
  EXPECT_EQ(
      limit_text(host_limit(84 * kGiB, 8, has)),
      "needs 672 GiB of host memory (8 ranks), this machine has 24.0 GiB (available 22.0 GiB)");
  expect_names(limit_text(beyond), {"25769803784 bytes", "25769803776 bytes"});
  HostMemory grouped{24 * kGiB, {{"task", 4 * kGiB, 1}, {"job", 5 * kGiB, 2}}, 22 * kGiB};
  EXPECT_TRUE(host_limit(5 * kGiB / 2, 2, grouped).holds())
      << "each rank has a group of its own in that of both";
  EXPECT_EQ(limit_text(host_limit(3 * kGiB, 2, grouped)),
            "needs 6.00 GiB of host memory of its control group (2 ranks), which has 5.00 GiB");
  grouped.groups[0].ranks = 2;
  EXPECT_EQ(limit_text(host_limit(5 * kGiB / 2, 2, grouped)),
            "needs 5.00 GiB of host memory of its control group (2 ranks), which has 4.00 GiB");
  EXPECT_FALSE(host_limit(INT64_MAX / 2, 8, has).holds()) << "products saturate";
}

TEST(PlanFit, AMissingDeviceIsReportedAsUnknown) {
  const PlanSource source = gpt(R"({"device": "cuda:17"})");
  const MadePlan made = make_plan(source);
  EXPECT_TRUE(made.plan.step().separate);
  const PlanFit fit = plan_fit(source, made);
  EXPECT_TRUE(fit.fits()) << fit.text();
  expect_names(fit.text(), {"the memory of device cuda:17 is not known here (",
                            "memory_budget.device is not set"});
  const PlanSource bounded = gpt(R"({"device": "cuda:17", "memory_budget": {"device": "1 GiB"}})");
  expect_names(plan_fit(bounded, make_plan(bounded)).text(), {"memory_budget.device is 1.00 GiB"});
}

}  // namespace
}  // namespace ds::test
