#include "run/setup.h"

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

PlanPrograms run_programs(const Config& config, const HfModel& model) {
  PlanPrograms programs;
  programs.infer = false;
  if (config.run.sample_tokens > 0) programs.decode = {config.sequence, model.position_offset};
  return programs;
}

}  // namespace ds
