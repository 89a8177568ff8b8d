#include "core/config/refusals.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "core/base/ascii.h"
#include "core/config/key.h"
#include "core/config/schema.h"

namespace ds {
namespace {

// Returns whether a text names the path or a path below it. A path that is one plain word
// ("device") is recognized only at the beginning of the text, where a refusal has its key, before a
// colon, or as the first part of a longer path.
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

constexpr const char* kWithoutEffect = "accepted-without-effect";
constexpr const char* kOnlyOff = "accepted-only-with-the-value-that-means-off";

// Returns the key that a deprecated name means, or the name itself.
std::string current_name(const std::string& key) {
  if (key == "bfloat16" || key.starts_with("bfloat16.")) return "bf16" + key.substr(8);
  if (key == kMaxGradNorm) return "gradient_clipping";
  for (const DeprecatedName& deprecated : kDeprecatedNames) {
    if (key == deprecated.name) return deprecated.path;
  }
  return key;
}

// Returns the anchor of the heading below which the reference page lists a key of DeepSpeed.
std::string heading_of(ForeignKey::Rule rule) {
  using enum ForeignKey::Rule;
  return rule == no_effect || rule == degree || rule == warned_section ? kWithoutEffect : kOnlyOff;
}

// Returns the anchor of each path on the reference page. A section has the anchor of its first key,
// and a key of DeepSpeed the anchor of its list.
std::map<std::string, std::string> anchors_of_page() {
  std::map<std::string, std::string> anchors;
  for (const Key& key : config_keys()) {
    anchors.emplace(key.path, key.path);
    if (!key.other.empty()) anchors.emplace(key.other_path(), key.path);
  }
  for (const ForeignKey& key : foreign_keys()) anchors.emplace(key.path, heading_of(key.rule));
  for (const Key& key : config_keys()) {
    for (size_t dot = key.path.find('.'); dot != std::string::npos;
         dot = key.path.find('.', dot + 1))
      anchors.emplace(key.path.substr(0, dot), key.path);
  }
  return anchors;
}

// Returns the anchor of docs/reference/config.md that describes a key, its closest enclosing key or
// section, or "" if the page has none. Second and deprecated names lead to the key that they mean.
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

}  // namespace ds
