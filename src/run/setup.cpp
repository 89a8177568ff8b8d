#include "run/setup.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "engine/threads.h"

namespace ds {
namespace {

// The value of a key in Config::effective(); null: there is none.
Json value_of(const Json& effective, std::string_view path) {
  const Json* at = effective.is_object() ? effective.find("config") : nullptr;
  while (at && at->is_object()) {
    const size_t end = path.find('.');
    at = at->find(path.substr(0, end));
    if (end == path.npos) return at ? *at : Json();
    path.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace

void merge_patch(Json& document, const Json& patch) {
  if (!patch.is_object()) {
    document = patch;
    return;
  }
  if (!document.is_object()) document = Json::Object{};
  for (const auto& [key, value] : patch.object()) {
    if (value.is_null()) {
      std::erase_if(document.object(),
                    [&, &name = key](const auto& member) { return member.first == name; });
      continue;
    }
    Json merged;
    if (const Json* old = document.find(key)) merged = *old;
    merge_patch(merged, value);
    document.set(key, std::move(merged));
  }
}

void check_masking_keys(const Config& config, const HfModel& model) {
  for (const char* name : kMaskingKeys) {
    if (!model.causal || config.origins.at(name) == "default") continue;
    raise(DS_ERROR_CONFIG,
          "{}: for models that predict masked tokens; family {} predicts the next one",
          KeyName(name), model.family);
  }
}

void check_curriculum_model(const Config& config, const HfModel& model) {
  if (!config.curriculum.enabled || model.causal) return;
  raise(DS_ERROR_CONFIG,
        "{}: true needs a model that predicts the next token; family {} predicts masked ones",
        KeyName("curriculum_learning.enabled"), model.family);
}

void check_order(const Config& config, const CheckpointInfo& saved) {
  const std::string dynamic = "data_efficiency.data_sampling.dynamic_batching.";
  const Json now = config.effective();
  auto same = [&](const std::string& path) {
    const Json before = value_of(saved.config, path), here = value_of(now, path);
    if (before.dump() == here.dump() || before.is_null()) return;
    raise(DS_ERROR_CONFIG,
          "{}: a resumed run goes on with the samples that come next, so it keeps their order; "
          "checkpoint "
          "'{}' has {}, the configuration {}",
          KeyName(path), saved.path, before.dump(), here.dump());
  };
  auto is_on = [&](const Json& of) {
    const Json value = value_of(of, dynamic + "enabled");
    return value.is_bool() && value.boolean();
  };
  same("run.sequence");
  same("run.seed");
  const bool before = is_on(saved.config), here = is_on(now);
  if (before != here) {
    raise(DS_ERROR_CONFIG,
          "{}: a resumed run goes on with the samples that come next, so it keeps their order; "
          "checkpoint "
          "'{}' has {}, the configuration {}",
          KeyName(dynamic + "enabled"), saved.path, before, here);
  }
  if (!here) return;
  for (const char* key :
       {"max_tokens", "min_batch_size", "max_batch_size", "sequence_picking_order"})
    same(dynamic + key);
  if (config.dynamic_batching.order == "random") same("data_efficiency.seed");
}

EngineOptions run_engine_options(const Config& config, const HfModel& model, int local_ranks) {
  EngineOptions options;
  options.threads = threads_of_rank(config, local_ranks);
  options.trace = true;
  options.programs = run_programs(config, model);
  return options;
}

PlanPrograms run_programs(const Config& config, const HfModel& model) {
  PlanPrograms programs;
  programs.infer = false;
  programs.evaluated = model.token_loss;
  if (config.run.sample_tokens > 0 && model.causal)
    programs.decode = {std::min(config.sequence, kSamplePrompt + config.run.sample_tokens),
                       model.position_offset};
  return programs;
}

}  // namespace ds
