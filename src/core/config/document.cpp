// Reads a document into values by canonical path.
//
// A key may be written under its path, a second name, a deprecated name, or in the section bfloat16
// instead of bf16. names_ maps each of these to the canonical path, and claim() refuses two names
// of one key. A section is read member by member unless check_foreign() checks it as a whole
// (whole_).
//
// "auto" is a value that a host framework fills in. Outside a framework, "auto" means the value
// that Hugging Face's integration takes from the defaults of its TrainingArguments, or the key
// waits for the value from which it is derived. In sections that the integration does not fill in,
// "auto" means the default.
//
// A misspelt key is refused with a suggestion. The suggested key becomes doubtful unless the
// document also gives it, because its value is probably under the misspelt name.
#include "core/config/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/config/key.h"
#include "core/config/nearest_path.h"
#include "core/config/refuse.h"
#include "core/config/schema.h"
#include "core/config/usual_names.h"

namespace ds {
namespace {

// The values that Hugging Face's integration fills in for "auto" with the defaults of its
// TrainingArguments (`./run interop auto` compares them). Keys whose value depends on other keys
// are in kAutoOfOthers.
struct AutoValue {
  const char* path;
  const char* json;
};
constexpr AutoValue kAutoValues[] = {{"train_micro_batch_size_per_gpu", "8"},
                                     {"gradient_accumulation_steps", "1"},
                                     {"gradient_clipping", "1.0"},
                                     {"fp16.enabled", "false"},
                                     {"bf16.enabled", "false"},
                                     {"optimizer.params.lr", "5e-05"},
                                     {"optimizer.params.betas", "[0.9, 0.999]"},
                                     {"optimizer.params.eps", "1e-08"},
                                     {"optimizer.params.weight_decay", "0.0"},
                                     {"scheduler.params.warmup_min_lr", "0"}};

// Keys whose "auto" waits for another value: the micro-batch, the learning rate, run.steps or the
// width of the model.
constexpr const char* kAutoOfOthers[] = {"train_batch_size",
                                         "scheduler.params.warmup_max_lr",
                                         "scheduler.params.warmup_num_steps",
                                         "scheduler.params.total_num_steps",
                                         "zero_optimization.reduce_bucket_size",
                                         "zero_optimization.stage3_prefetch_bucket_size",
                                         "zero_optimization.stage3_param_persistence_threshold"};

// Returns whether "auto" at this path is an error unless Hugging Face's integration fills it in: at
// the top level, in optimizer and in scheduler. At other paths DeepSpeed drops an "auto" that is
// not filled in, so the default applies.
bool filled_by_caller(const std::string& path) {
  return path.find('.') == path.npos || path.starts_with("optimizer.") ||
         path.starts_with("scheduler.");
}

// Returns whether "auto" is a value of the key itself, as for some of libds's own keys.
bool takes_auto_itself(const std::string& path) {
  return path == "fused_head" || path == "topology.levels";
}

}  // namespace

bool takes_auto(const std::string& path) {
  const auto is_key = [&](const char* other) { return path == other; };
  return !filled_by_caller(path) || takes_auto_itself(path) ||
         std::ranges::any_of(kAutoOfOthers, is_key) ||
         std::ranges::any_of(kAutoValues,
                             [&](const AutoValue& filled) { return is_key(filled.path); });
}

ConfigDocument::ConfigDocument(ConfigRefusals& refusals, Config& config)
    : refusals_(refusals), config_(config) {
  for (const Key& key : config_keys()) {
    add(key.path, key.path);
    if (!key.other.empty()) add(key.other_path(), key.path);
  }
  for (const ForeignKey& key : foreign_keys()) {
    add(key.path, key.path);
    if (key.whole()) whole_.insert(key.path);
  }
  for (const std::string& path : std::vector<std::string>(known_)) {
    if (path.starts_with("bf16.")) add("bfloat16." + path.substr(5), path);
  }
  for (const DeprecatedName& deprecated : kDeprecatedNames) add(deprecated.name, deprecated.path);
  add(kMaxGradNorm, kMaxGradNorm);
  sections_.insert("memory_budget");
}

void ConfigDocument::read(const Json& section, const std::string& prefix) {
  for (const auto& [name, value] : section.object()) {
    const std::string path = prefix + name;
    // A null means that the key is not given.
    if (value.is_null() && (names_.contains(path) || sections_.contains(path))) continue;
    const bool of_sections = name.find('.') != name.npos;
    collect(refusals_, Causes::itself,
            [&] { of_sections ? dotted(prefix, name) : member(path, value); });
  }
}

const Given* ConfigDocument::find(const std::string& path) const {
  for (const auto& [name, given] : values_) {
    if (name == path) return &given;
  }
  return nullptr;
}

void ConfigDocument::add(const std::string& name, const std::string& canonical) {
  names_[name] = canonical;
  known_.push_back(name);
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (sections_.insert(name.substr(0, dot)).second) known_.push_back(name.substr(0, dot));
  }
}

void ConfigDocument::member(const std::string& path, const Json& value) {
  // DeepSpeed's old form "zero_optimization": true means stage 1. It is handled before the check
  // that a section is an object.
  if (path == "zero_optimization" && value.is_bool()) {
    give("zero_optimization.stage", path, value.boolean() ? 1 : 0, "config");
    return;
  }
  const bool automatic_value = value.is_string() && value.string() == "auto";
  if (path == "topology" && automatic_value) {
    give("topology.levels", path, value, "config");
    return;
  }
  if (!whole_.contains(path) && sections_.contains(path)) {
    if (!filled_by_caller(path) && automatic_value) return;
    read_.insert(path);
    refusals_.doubtful.erase(path);
    if (!value.is_object())
      refuse(path, "expected a section, got {}{}", value.dump(), meant_inside(path, value));
    read(value, path + ".");
    return;
  }
  const auto found = names_.find(path);
  if (found == names_.end()) return unknown(path);
  if (automatic_value && !takes_auto_itself(path)) return automatic(found->second, path);
  const bool old_switch =
      path.starts_with("zero_optimization.cpu_offload") && found->second != path;
  if (!old_switch) return give(found->second, path, value, "config");
  if (read_value<bool>(path, value)) give(found->second, path, "cpu", "config");
}

// Returns a suggestion for a plain value in place of a section, with the member that was probably
// meant: `; did you mean {"enabled": true}?`
std::string ConfigDocument::meant_inside(const std::string& path, const Json& value) const {
  const std::vector<const char*> members = value.is_bool()     ? std::vector{"enabled"}
                                           : value.is_number() ? std::vector{"stage"}
                                           : value.is_string()
                                               ? std::vector{"type", "device", "folder", "paths"}
                                               : std::vector<const char*>();
  for (const char* member : members) {
    if (names_.contains(path + "." + member))
      return fmt::format("; did you mean {{\"{}\": {}}}?", member, value.dump());
  }
  return "";
}

// In a section an unknown key is a mistake, because only DeepSpeed and libds read these sections.
// The top level may also have keys of other programs, which DeepSpeed ignores, so there only a name
// that resembles a key is refused.
void ConfigDocument::unknown(const std::string& path) {
  const bool nested = path.find('.') != std::string::npos;
  std::string near = usual_key(path);
  if (near.empty()) near = nested ? nearest_path(path, known_) : resembling_path(path, known_);
  if (near.empty() && !nested && ascii_lower(path.substr(0, 4)) == "zero")
    near = "zero_optimization";
  if (!nested && near.empty()) return warn_of_stranger(path);
  collect(
      refusals_, Causes::itself,
      [&] { refuse(path, "unknown key{}", near.empty() ? "" : "; did you mean " + near + "?"); },
      near);
  const auto meant = names_.find(near);
  const std::string& key = meant == names_.end() ? near : meant->second;
  if (!near.empty() && !is_given(key)) refusals_.doubtful.insert(key);
}

void ConfigDocument::warn_of_stranger(const std::string& name) {
  config_.warnings.push_back(fmt::format(
      "{}: neither DeepSpeed nor libds reads this key; it has no effect", one_line(name)));
}

// Refuses a name with dots, or warns of it if no part resembles a key. DeepSpeed does not look for
// sections in such a name, so the key would have no effect.
void ConfigDocument::dotted(const std::string& prefix, const std::string& name) {
  const std::string path = prefix + name;
  if (prefix.empty() && !sections_.contains(name.substr(0, name.find('.')))) {
    std::string near = usual_key(name.substr(0, name.find('.')));
    if (near.empty()) near = usual_key(name.substr(name.rfind('.') + 1));
    if (near.empty()) return warn_of_stranger(name);
    refuse(path, "unknown key; did you mean {}? Write sections as nested objects", near);
  }
  if (!names_.contains(path) && !sections_.contains(path)) return unknown(path);
  collect(refusals_, Causes::itself, [&] {
    refuse(path, "unknown key: \"{}\" is one name; write sections as nested objects", name);
  });
  if (is_given(path)) refusals_.doubtful.erase(path);
}

void ConfigDocument::automatic(const std::string& canonical, const std::string& name) {
  for (const AutoValue& filled : kAutoValues) {
    if (canonical != filled.path) continue;
    return give(canonical, name, Json::parse(filled.json), "auto");
  }
  for (const char* path : kAutoOfOthers) {
    if (canonical != path) continue;
    claim(canonical, name);
    waiting_.insert(canonical);
    return;
  }
  if (filled_by_caller(name))
    refuse(name, "Hugging Face's integration does not fill in a value for \"auto\" here; give one");
  // Elsewhere DeepSpeed drops "auto", so the key has its default.
}

void ConfigDocument::claim(const std::string& canonical, const std::string& name) {
  const auto [before, fresh] = given_as_.emplace(canonical, name);
  // The document gives the key, so no misspelt name meant it.
  refusals_.doubtful.erase(canonical);
  if (!fresh)
    raise(DS_ERROR_CONFIG, "{} and {} are two names of one key; give one", before->second,
          KeyName(name));
}

void ConfigDocument::give(const std::string& canonical, const std::string& name, const Json& value,
                          const char* origin) {
  claim(canonical, name);
  values_.emplace_back(canonical, Given{value, origin});
}

}  // namespace ds
