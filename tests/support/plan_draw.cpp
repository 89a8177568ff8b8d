// Checks on random configurations that `libds plan` shows the plan that an engine runs.
#include "support/plan_draw.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_folder.h"
#include "core/base/device_name.h"
#include "core/base/error.h"
#include "core/config/parse_config.h"
#include "engine/engine.h"
#include "run/plan_fit.h"
#include "run/setup.h"
#include "support/dice.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

struct Draw {
  std::string text;
  int ranks = 1;
  bool chaos = false, of_run = false;
};

std::string zero_section(Dice& dice, int ranks, const std::string& folder) {
  const int64_t stage = dice.below(4);
  std::string out = fmt::format(
      R"("zero_optimization": {{"stage": {}, "reduce_bucket_size": {}, "stage3_param_persistence_threshold": {},
         "stage3_max_reuse_distance": {}, "sub_group_size": 4096, "overlap_comm": {})",
      stage, dice.pick<int64_t>({1000, 4000, 1 << 20}), dice.pick<int64_t>({0, 300}),
      dice.pick<int64_t>({0, 2000, 1 << 20}), dice.one_in(4) ? "false" : "true");
  auto offload = [&](const char* key, const char* tier) {
    out += fmt::format(R"(, "{}": {{"device": "{}", "nvme_path": "{}"}})", key, tier, folder);
  };
  if (dice.one_in(2)) offload("offload_optimizer", dice.pick<const char*>({"cpu", "nvme"}));
  if (stage == 3 && dice.one_in(2))
    offload("offload_param", dice.pick<const char*>({"cpu", "nvme"}));
  if (stage == 3 && ranks == 4 && dice.one_in(3)) out += R"(, "mics_shard_size": 2)";
  return out + "}";
}

std::string optimizer_section(Dice& dice) {
  const char* type =
      dice.pick<const char*>({"AdamW", "AdamW", "Lion", "Lamb", "SGD", "OneBitAdam", "Muon"});
  return fmt::format(R"("optimizer": {{"type": "{}", "params": {{"lr": 0.001}}}})", type);
}

std::string run_section(Dice& dice, int64_t sequence) {
  return fmt::format(
      R"("run": {{"sequence": {}, "threads": 1, "steps": 8, "sample_tokens": {}, "sample_every": {},
         "eval_every": {}, "save_every": 2, "async_save": {}}})",
      sequence, dice.pick<int64_t>({0, 4, 90}), dice.pick<int64_t>({0, 2}),
      dice.pick<int64_t>({0, 3}), dice.one_in(2) ? "true" : "false");
}

Draw draw(uint64_t seed, const std::string& device, const std::string& folder) {
  Dice dice(seed, 63);
  Draw out;
  out.ranks = static_cast<int>(dice.pick({1, 1, 2, 3, 4}));
  out.chaos = device == "chaos";
  out.of_run = dice.one_in(2);
  const int64_t sequence = dice.pick<int64_t>({8, 72});
  std::vector<std::string> parts{
      fmt::format(R"("train_micro_batch_size_per_gpu": {}, "gradient_accumulation_steps": {})",
                  1 + dice.below(2), dice.pick<int64_t>({1, 2, 19})),
      fmt::format(R"("device": "{}")", out.chaos ? "cpu" : device),
      zero_section(dice, out.ranks, folder), optimizer_section(dice), run_section(dice, sequence)};
  if (out.of_run) {
    parts.push_back(fmt::format(
        R"("model": {{"family": "gpt", "layers": {}, "hidden": 16, "heads": 2, "vocab": {}}})",
        1 + dice.below(2), dice.pick<int64_t>({40, 4200})));
  }
  if (const char* type = dice.pick<const char*>({"", "bf16", "fp16"}); *type)
    parts.push_back(fmt::format(R"("{}": {{"enabled": true}})", type));
  if (dice.one_in(4)) parts.emplace_back(R"("emulate_tiers": true)");
  if (out.ranks == 4 && dice.one_in(2)) parts.emplace_back(R"("topology": {"nodes": 2})");
  if (const char* recompute = dice.pick<const char*>({"", "", "cheap", "layers"}); *recompute)
    parts.push_back(fmt::format(R"("recompute": "{}")", recompute));
  if (const char* head = dice.pick<const char*>({"", "", "always", "never"}); *head)
    parts.push_back(fmt::format(R"("fused_head": "{}")", head));
  if (dice.one_in(4)) parts.emplace_back(R"("wall_clock_breakdown": true)");
  if (dice.one_in(4))
    parts.emplace_back(R"("flops_profiler": {"enabled": true, "profile_step": 2})");
  if (dice.one_in(3)) {
    parts.push_back(fmt::format(R"("memory_budget": {{"device": {}}})",
                                dice.pick<int64_t>({120'000, 400'000, 4'000'000})));
  }
  out.text = fmt::format("{{{}}}", fmt::join(parts, ", "));
  return out;
}

void expect_equal(const MadePlan& made, const Engine& engine) {
  EXPECT_EQ(made.plan.hash, engine.plan().hash);
  EXPECT_EQ(made.plan.notes, engine.plan().notes);
  EXPECT_EQ(print_steps(made.plan), print_steps(engine.plan()));
  const MemoryPlan planned = made.plan.memory, own = engine.plan().memory;
  for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const auto t = static_cast<int>(tier);
    EXPECT_EQ(planned.tiers[t].persistent, own.tiers[t].persistent) << tier_name(tier);
    EXPECT_EQ(planned.tiers[t].transient, own.tiers[t].transient) << tier_name(tier);
    EXPECT_EQ(planned.total(tier), engine.runtime().mapped(tier)) << tier_name(tier);
  }
}

}  // namespace

bool plan_is_the_engines(uint64_t seed, const std::string& device) {
  const TempFolder folder;
  const Draw drawn = draw(seed, device, folder.path());
  SCOPED_TRACE(fmt::format("seed {} on {}, {} ranks: {}", seed, device, drawn.ranks, drawn.text));
  PlanSource source{Json::parse(drawn.text), nullptr, 0, drawn.ranks};
  const int64_t rows = source.document.find("train_micro_batch_size_per_gpu")->integer() * 8;
  if (!drawn.of_run)
    source.graph = std::make_shared<const Graph>(make_tiny_gpt(1, 16, 2, 29, 8, rows, 0.1));
  std::vector<MadePlan> made;
  try {
    for (source.rank = 0; source.rank < drawn.ranks; ++source.rank)
      made.push_back(make_plan(source));
  } catch (const Error& error) {
    EXPECT_TRUE(error.status() == DS_ERROR_CONFIG || error.status() == DS_ERROR_UNSUPPORTED)
        << error.what();
    return false;
  }
  const bool within = fits(made[0].plan.memory, made[0].config.memory_budget);
  std::atomic<bool> taken = true;
  run_ranks(drawn.ranks, [&](Communicator& comm) {
    Config config = parse_config(source.document, comm.size());
    EngineOptions options;
    HfModel model;
    if (drawn.of_run) {
      model = configured_model(config);
      options = run_engine_options(config, model, comm.local_size());
    }
    if (drawn.chaos) options.chaos_seed = seed;
    try {
      Engine engine(config, source.graph ? *source.graph : model.graph, comm, options);
      expect_equal(made[static_cast<size_t>(comm.rank())], engine);
    } catch (const Error& error) {
      const bool beyond = error.status() == DS_ERROR_OUT_OF_MEMORY && !within;
      const bool no_kernel = error.status() == DS_ERROR_UNSUPPORTED && names_cuda(device);
      EXPECT_TRUE(beyond || no_kernel) << error.what();
      if (no_kernel) taken = false;
    }
  });
  return taken;
}

uint64_t plan_draws(uint64_t few) {
  const char* wanted = std::getenv("DS_PLAN_DRAWS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : few;
}

}  // namespace ds::test
