// Parses a configuration in four passes.
//
// 1. The document is read into values by canonical path (core/config/document.h). Unknown names are
//    refused here.
// 2. DeepSpeed's keys that libds does not act on are checked (core/config/foreign.cpp).
// 3. Keys are set in the order of config_keys(), so a setter may rely on the keys before it: the
//    type of an optimizer brings the defaults that its parameters then replace.
// 4. The checks of the sections complete the configuration and refuse contradictions.
//
// Every refusal is collected, and the passes go on, so that `libds config` can list all of them. A
// refused key keeps its default, which may look like a contradiction to a later check. Therefore
// refused keys are `doubtful`, and refusals that mention one are dropped (core/config/refusals.h).
#include "core/config/parse_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/config/document.h"
#include "core/config/key.h"
#include "core/config/refuse.h"
#include "core/config/schema.h"
#include "core/config/sections.h"

namespace ds {
namespace {

// Returns whether an enclosing section of this path has an `enabled` that is false.
bool switched_off_around(const ConfigDocument& reader, const std::string& path) {
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const std::string key = path.substr(0, dot) + ".enabled";
    const Given* enabled = reader.find(key);
    if (enabled && truth_at(key, enabled->value) == false) return true;
  }
  return false;
}

}  // namespace

void warn_of_forgotten_switches(Config& config) {
  for (const Key& key : config_keys()) {
    if (!key.path.ends_with(".enabled") || config.origins.contains(key.path)) continue;
    const Json value = key.get(config);
    if (!value.is_null() && !(value.is_bool() && !value.boolean())) continue;
    const std::string section = key.path.substr(0, key.path.rfind('.') + 1);
    const auto given = std::ranges::find_if(config.origins, [&](const auto& origin) {
      const std::string& path = origin.first;
      return origin.second == "config" && path.starts_with(section) &&
             path.find('.', section.size()) == path.npos;
    });
    if (given == config.origins.end()) continue;
    config.warnings.push_back(
        fmt::format("{}: has no effect without {} true", given->first, key.path));
  }
}

Config parse_config(const Json& document, int world, ConfigRefusals& refusals) {
  require(world > 0, "world must be at least 1, got {}", world);
  if (!document.is_object()) refuse("config", "expected an object, got {}", document.kind());
  Config config;
  ConfigDocument reader(refusals, config);
  reader.read(document, "");
  auto checked = [&](auto part) { collect(refusals, Causes::others, part); };
  for (const ForeignKey& key : foreign_keys()) {
    const Given* given = reader.find(key.path);
    if (!given) continue;
    const bool may_be_off =
        key.rule == ForeignKey::Rule::nested || key.rule == ForeignKey::Rule::only;
    if (may_be_off && switched_off_around(reader, key.path)) continue;
    collect(refusals, Causes::itself, [&] {
      const ForeignEffect effect = check_foreign(key, given->value);
      if (effect != ForeignEffect::off) config.without_effect.push_back(key.path);
      if (effect == ForeignEffect::warning) config.warnings.push_back(key.path + ": " + key.reason);
    });
  }
  for (const Key& key : config_keys()) {
    const Given* given = reader.find(key.path);
    if (!given) continue;
    // This origin remains if the setter throws.
    config.origins[key.path] = kRefused;
    checked([&] {
      key.set(config, given->value);
      config.origins[key.path] = given->origin;
    });
  }
  // If only train_batch_size is given, as "auto", Hugging Face's integration also fills in the
  // micro-batch.
  if (reader.waits("train_batch_size") &&
      !config.origins.contains("train_micro_batch_size_per_gpu")) {
    config.micro_batch = kAutoMicroBatch;
    config.origins["train_micro_batch_size_per_gpu"] = "auto";
  }
  // Files for DeepSpeed's autotuner have no batch sizes but are also used for training. A document
  // without batch sizes gets a micro-batch of 1 with a warning. complete_batch() refuses an empty
  // document.
  const bool says_nothing = document.object().empty();
  const char* const batches[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                 "gradient_accumulation_steps"};
  const bool of_batches = std::ranges::any_of(batches, [&](const char* name) {
    return config.origins.contains(name) || refusals.doubtful.contains(name);
  });
  if (!says_nothing && !of_batches) {
    config.micro_batch = 1;
    config.origins["train_micro_batch_size_per_gpu"] = "derived";
    config.warnings.emplace_back(
        "train_micro_batch_size_per_gpu: the file gives no batch size, so 1 is used");
  }
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigCheck& check : section.checks)
      checked([&] { check.run(config, reader, world); });
  }
  for (const char* name : batches) config.origins.emplace(name, "derived");
  for (const Key& key : config_keys()) config.origins.emplace(key.path, "default");
  return config;
}

Config parse_config(const Json& document, int world) {
  ConfigRefusals refusals;
  Config config = parse_config(document, world, refusals);
  const std::vector<Error>& errors = refusals.errors;
  if (errors.empty()) return config;
  if (errors.size() == 1) throw errors[0];
  throw Error(DS_ERROR_CONFIG,
              one_line(fmt::format("{} (and {} more: `libds config` lists all)", errors[0].what(),
                                   errors.size() - 1)),
              errors[0].details());
}

}  // namespace ds
