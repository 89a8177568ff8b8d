#include "run/setup.h"

#include <algorithm>

#include "core/base/error.h"

namespace ds {

void merge_patch(Json& document, const Json& patch) {
  if (!patch.is_object()) {
    document = patch;
    return;
  }
  if (!document.is_object()) document = Json::Object{};
  for (const auto& [key, value] : patch.object()) {
    if (value.is_null()) {
      std::erase_if(document.object(), [&, &name = key](const auto& member) { return member.first == name; });
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
    raise(DS_ERROR_CONFIG, "{}: for models that predict masked tokens; family {} predicts the next one",
          KeyName(name), model.family);
  }
}

void check_curriculum_model(const Config& config, const HfModel& model) {
  if (!config.curriculum.enabled || model.causal) return;
  raise(DS_ERROR_CONFIG,
        "{}: true needs a model that predicts the next token; family {} predicts masked ones",
        KeyName("curriculum_learning.enabled"), model.family);
}

PlanPrograms run_programs(const Config& config, const HfModel& model) {
  PlanPrograms programs;
  programs.infer = false;
  if (config.run.sample_tokens > 0 && model.causal)
    programs.decode = {config.sequence, model.position_offset};
  return programs;
}

}  // namespace ds
