#include "core/config/document.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "core/base/ascii.h"
#include "core/config/nearest_path.h"
#include "core/config/schema.h"
#include "core/config/usual_names.h"
#include "core/config/values.h"

namespace ds {
namespace {

// What Hugging Face's integration fills in for "auto" with the defaults of its TrainingArguments
// (`./run interop auto` compares). Those that depend on others are in kAutoOfOthers.
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

// Waiting for others: the micro-batch, the learning rate, run.steps, the width of the model.
constexpr const char* kAutoOfOthers[] = {"train_batch_size",
                                         "scheduler.params.warmup_max_lr",
                                         "scheduler.params.warmup_num_steps",
                                         "scheduler.params.total_num_steps",
                                         "zero_optimization.reduce_bucket_size",
                                         "zero_optimization.stage3_prefetch_bucket_size",
                                         "zero_optimization.stage3_param_persistence_threshold"};

std::string sibling(const std::string& path, const std::string& name) {
  return path.substr(0, path.rfind('.') + 1) + name;
}

// Whether a text names the path or one below it. A path that is one plain word ("device") counts
// only at the beginning, where a refusal has its key, before a colon, or as the first part of a
// longer path.
bool mentions(std::string_view text, std::string_view path) {
  const auto of_name = [](char c) { return is_ascii_letter(c) || is_ascii_digit(c) || c == '_'; };
  for (size_t at = text.find(path); at != text.npos; at = text.find(path, at + 1)) {
    const size_t end = at + path.size();
    const bool begins = at == 0 || (!of_name(text[at - 1]) && text[at - 1] != '.');
    const bool ends = end == text.size() || !of_name(text[end]);
    const bool as_key =
        end + 1 < text.size() && (text[end] == ':' || (text[end] == '.' && of_name(text[end + 1])));
    if (begins && ends && (at == 0 || as_key || path.find_first_of("._") != path.npos)) return true;
  }
  return false;
}

// Whether Hugging Face's integration fills "auto" in there; DeepSpeed drops it from its other
// sections.
bool filled_by_caller(const std::string& path) {
  return path.find('.') == path.npos || path.starts_with("optimizer.") ||
         path.starts_with("scheduler.");
}

// A word of our own keys.
bool takes_auto_itself(const std::string& path) {
  return path == "fused_head" || path == "topology.levels";
}

constexpr const char* kWithoutEffect = "accepted-without-effect";
constexpr const char* kOnlyOff = "accepted-only-with-the-value-that-means-off";

// The key that a deprecated name means, or the name.
std::string current_name(const std::string& key) {
  if (key == "bfloat16" || key.starts_with("bfloat16.")) return "bf16" + key.substr(8);
  if (key == ConfigDocument::kMaxGradNorm) return "gradient_clipping";
  for (const DeprecatedName& deprecated : kDeprecatedNames) {
    if (key == deprecated.name) return deprecated.path;
  }
  return key;
}

// The heading of the list in which the page names a key of DeepSpeed.
std::string heading_of(ForeignKey::Rule rule) {
  using enum ForeignKey::Rule;
  return rule == no_effect || rule == degree || rule == warned_section ? kWithoutEffect : kOnlyOff;
}

// The anchor of each path that the page has: keys, sections by their first key, and keys of
// DeepSpeed.
std::map<std::string, std::string> anchors_of_page() {
  std::map<std::string, std::string> anchors;
  for (const Key& key : config_keys()) {
    anchors.emplace(key.path, key.path);
    if (!key.other.empty()) anchors.emplace(sibling(key.path, key.other), key.path);
  }
  for (const ForeignKey& key : foreign_keys()) anchors.emplace(key.path, heading_of(key.rule));
  for (const Key& key : config_keys()) {
    for (size_t dot = key.path.find('.'); dot != std::string::npos;
         dot = key.path.find('.', dot + 1))
      anchors.emplace(key.path.substr(0, dot), key.path);
  }
  return anchors;
}

// The place in docs/reference/config.md that describes a key, as the page's anchor: the path of the
// key itself, of a key that holds it or of the first key in it, or the heading of the list that has
// a key of DeepSpeed. Second and deprecated names lead to the key that they mean. A key that the
// page does not have:
// "".
std::string key_anchor(const std::string& key) {
  static const std::map<std::string, std::string> anchors = anchors_of_page();
  for (std::string path = current_name(key); !path.empty();) {
    if (auto found = anchors.find(path); found != anchors.end()) return found->second;
    const size_t end = path.find_last_of(".[");
    path.resize(end == path.npos ? 0 : end);
  }
  return "";
}

}  // namespace

void keep_refusal(ConfigRefusals& refusals, Causes causes, const Error& error,
                  const std::string& described) {
  const std::string& key = error.details().key;
  for (const std::string& path : refusals.doubtful) {
    if (causes == Causes::others && mentions(error.what(), path)) return;
  }
  const std::string anchor = key_anchor(described.empty() ? key : described);
  refusals.errors.emplace_back(
      error.status(),
      one_line(anchor.empty()
                   ? error.what()
                   : fmt::format("{} (docs/reference/config.md#{})", error.what(), anchor)),
      error.details());
  if (!key.empty()) refusals.doubtful.insert(key);
}

ConfigDocument::ConfigDocument(ConfigRefusals& refusals, Config& config)
    : refusals_(refusals), config_(config) {
  for (const Key& key : config_keys()) {
    add(key.path, key.path);
    if (!key.other.empty()) add(sibling(key.path, key.other), key.path);
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
    if (value.is_null() && (names_.contains(path) || sections_.contains(path)))
      continue;  // not given
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
  if (path == "zero_optimization" && value.is_bool()) {  // before sections: true means stage 1
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
      raise(DS_ERROR_CONFIG, "{}: expected a section, got {}{}", KeyName(path), value.dump(),
            meant_inside(path, value));
    read(value, path + ".");
    return;
  }
  const auto found = names_.find(path);
  if (found == names_.end()) return unknown(path);
  if (automatic_value && !takes_auto_itself(path)) return automatic(found->second, path);
  const bool old_switch =
      path.starts_with("zero_optimization.cpu_offload") && found->second != path;
  if (!old_switch) return give(found->second, path, value, "config");
  bool on = false;
  read_value(path, value, {}, on);
  if (on) give(found->second, path, "cpu", "config");
}

// The member of a section that a plain value in its place was meant for: ; did you mean {"enabled":
// true}?
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

// Nested keys belong to a section that somebody reads, so a stranger among them is a mistake. At
// the top level DeepSpeed reads what it knows, and files have keys of other programs there.
void ConfigDocument::unknown(const std::string& path) {
  const bool nested = path.find('.') != std::string::npos;
  std::string near = usual_key(path);
  if (near.empty()) near = nested ? nearest_path(path, known_) : resembling_path(path, known_);
  if (near.empty() && !nested && ascii_lower(path.substr(0, 4)) == "zero")
    near = "zero_optimization";
  if (!nested && near.empty()) return warn_of_stranger(path);
  collect(
      refusals_, Causes::itself,
      [&] {
        raise(DS_ERROR_CONFIG, "{}: unknown key{}", KeyName(path),
              near.empty() ? "" : "; did you mean " + near + "?");
      },
      near);
  const auto meant = names_.find(near);
  const std::string& key = meant == names_.end() ? near : meant->second;
  if (!near.empty() && !is_given(key)) refusals_.doubtful.insert(key);
}

void ConfigDocument::warn_of_stranger(const std::string& name) {
  config_.warnings.push_back(fmt::format(
      "{}: neither DeepSpeed nor libds reads this key; it has no effect", one_line(name)));
}

// A name with dots is one name in JSON; DeepSpeed does not look for sections in it.
void ConfigDocument::dotted(const std::string& prefix, const std::string& name) {
  const std::string path = prefix + name;
  if (prefix.empty() && !sections_.contains(name.substr(0, name.find('.')))) {
    std::string near = usual_key(name.substr(0, name.find('.')));
    if (near.empty()) near = usual_key(name.substr(name.rfind('.') + 1));
    if (near.empty()) return warn_of_stranger(name);
    raise(DS_ERROR_CONFIG, "{}: unknown key; did you mean {}? Write sections as nested objects",
          KeyName(path), near);
  }
  if (!names_.contains(path) && !sections_.contains(path)) return unknown(path);
  collect(refusals_, Causes::itself, [&] {
    raise(DS_ERROR_CONFIG, "{}: unknown key: \"{}\" is one name; write sections as nested objects",
          KeyName(path), name);
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
    raise(DS_ERROR_CONFIG,
          "{}: Hugging Face's integration fills no value in for \"auto\" here; give one",
          KeyName(name));
  // DeepSpeed drops it from its other sections: the default.
}

void ConfigDocument::claim(const std::string& canonical, const std::string& name) {
  const auto [before, fresh] = given_as_.emplace(canonical, name);
  refusals_.doubtful.erase(canonical);  // another name only resembled it
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
