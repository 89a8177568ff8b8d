#include "run/setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint/gguf/model.h"
#include "compile/plan.h"
#include "core/config/refuse.h"
#include "data/curriculum.h"
#include "data/data_efficiency.h"
#include "data/keys.h"
#include "data/preference.h"
#include "engine/threads.h"
#include "io/gguf.h"
#include "nn/adapter_keys.h"
#include "run/keys.h"

namespace ds {
namespace {

// Returns the value of a key in Config::effective(), or null if the key is missing.
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

// Only keys that the user set are refused, not those with default values.
void check_masking_keys(const Config& config, const HfModel& model) {
  for (const char* name : kMaskingKeys) {
    if (!model.causal || config.origins.at(name) == "default") continue;
    refuse(name,
           "works only for models that predict masked tokens; family {} predicts the next token",
           model.family);
  }
}

void check_curriculum_model(const CurriculumKeys& keys, const HfModel& model) {
  if (!keys.enabled || model.causal) return;
  refuse("curriculum_learning.enabled",
         "true needs a model that predicts the next token; family {} predicts masked tokens",
         model.family);
}

// The position in a checkpoint is the index of a sample, so all keys that determine the order of
// samples must be equal. A key that the checkpoint's version did not have is accepted, because that
// version had only one order.
void check_order(const Config& config, const CheckpointInfo& saved) {
  const std::string dynamic = "data_efficiency.data_sampling.dynamic_batching.";
  const Json now = config.effective();
  auto same = [&](const std::string& path) {
    const Json before = value_of(saved.config, path), here = value_of(now, path);
    if (before.dump() == here.dump() || before.is_null()) return;
    refuse(path,
           "a resumed run goes on with the samples that come next, so it keeps their order; "
           "checkpoint '{}' has {}, but the configuration has {}",
           saved.path, before.dump(), here.dump());
  };
  auto is_on = [&](const Json& of) {
    const Json value = value_of(of, dynamic + "enabled");
    return value.is_bool() && value.boolean();
  };
  same("run.sequence");
  same("run.seed");
  const bool before = is_on(saved.config), here = is_on(now);
  if (before != here) {
    refuse(dynamic + "enabled",
           "a resumed run goes on with the samples that come next, so it keeps their order; "
           "checkpoint '{}' has {}, but the configuration has {}",
           saved.path, before, here);
  }
  if (!here) return;
  for (const char* key :
       {"max_tokens", "min_batch_size", "max_batch_size", "sequence_picking_order"})
    same(dynamic + key);
  // The seed of the groups matters only if they are shuffled.
  if (config.get<DynamicBatchingKeys>().order == "random") same("data_efficiency.seed");
}

namespace {

std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// Makes the members of a section that name folders absolute.
void make_absolute(Json& section) {
  if (!section.is_object()) return;
  for (auto& [name, value] : section.object()) {
    if (name == "folder" && value.is_string() && !value.string().empty())
      value = absolute_path(value.string());
    if (name != "others" || !value.is_array()) continue;
    // Each is NAME=DIR.
    for (Json& other : value.array()) {
      const size_t at = other.is_string() ? other.string().find('=') : std::string::npos;
      if (at == std::string::npos || at + 1 == other.string().size()) continue;
      const std::string name_part = other.string().substr(0, at + 1);
      other = name_part + absolute_path(other.string().substr(at + 1));
    }
  }
}

}  // namespace

Json with_absolute_folders(Json document) {
  if (!document.is_object()) return document;
  for (auto& [name, section] : document.object()) {
    if (name == "model" || name == "adapter") make_absolute(section);
  }
  return document;
}

void load_folders(Checkpoints& checkpoints, const Config& config) {
  const std::string &model = config.model.folder, &adapter = config.get<AdapterKeys>().folder;
  // A vocabulary that cannot be exported is refused before the run and not after it.
  if (is_gguf(model) && !config.get<AdapterKeys>().on()) gguf_side_files(model, DS_DTYPE_F32);
  if (!model.empty() && config.model.init == "folder") checkpoints.load_weights(model);
  if (!adapter.empty()) checkpoints.load_weights(adapter);
}

void note_export(RunLog& log, const Config& config, const std::string& exported) {
  log.note("model " + exported);
  const std::string& from = config.model.folder;
  if (!is_gguf(from)) return;
  const bool adapter = config.get<AdapterKeys>().on();
  log.note(fmt::format("as GGUF: libds convert {} {}", exported,
                       adapter ? "adapter.gguf --like " + from : "model.gguf"));
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
  // Generating the sample text needs caches, so the program for inference without caches is left
  // out, unless it computes the losses of a reference.
  programs.infer = config.get<PreferenceKeys>().referred();
  programs.evaluated = model.token_loss;
  const int64_t tokens = config.get<RunKeys>().sample_tokens;
  if (tokens > 0 && model.causal)
    programs.decode = {std::min(config.sequence, kSamplePrompt + tokens), model.position_offset};
  return programs;
}

}  // namespace ds
