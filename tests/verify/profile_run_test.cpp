#include <gtest/gtest.h>

#include "checkpoint/model_folder.h"
#include "compile/pipeline.h"
#include "core/config/parse_config.h"
#include "diagnostics/profile.h"

namespace ds {
namespace {

// A profile runs the same programs as training and fits into the same memory.
TEST(ProfileRun, FitsTheMemoryOfARun) {
  Json document = Json::parse(R"({
    "train_micro_batch_size_per_gpu": 1, "run": {"sequence": 16, "threads": 1},
    "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 4096}})");
  Config config = parse_config(document, 1);
  Plan plan =
      compile_plan(configured_model(config).graph, config, 0, 1, {}, true, {.infer = false});
  Json budget;
  budget.set("device", plan.memory.total(Tier::device));
  document.set("memory_budget", std::move(budget));
  ProfileRequest request;
  request.steps = 1;
  EXPECT_GT(profile(document, "", request, *create_communicator("self", {})).tokens, 0);
}

}  // namespace
}  // namespace ds
