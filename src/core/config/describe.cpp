#include "core/config/describe.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/config/document.h"
#include "core/config/key.h"
#include "core/config/refusals.h"
#include "core/config/schema.h"

namespace ds {
namespace {

// Appends a title and indented lines. Without lines it appends nothing.
void section(std::string& out, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  out += fmt::format("{}\n", title);
  for (const std::string& line : lines) out += "  " + line + "\n";
  out += "\n";
}

std::vector<std::string> messages(const ConfigRefusals& refusals) {
  std::vector<std::string> lines;
  for (const Error& error : refusals.errors) lines.emplace_back(error.what());
  return lines;
}

Json texts(const std::vector<std::string>& lines) {
  return Json(Json::Array(lines.begin(), lines.end()));
}

// Returns the member at a dotted path, or null.
const Json* member_at(const Json& document, const std::string& path) {
  const size_t dot = path.find('.');
  const Json* member = document.is_object() ? document.find(path.substr(0, dot)) : nullptr;
  return member && dot != path.npos ? member_at(*member, path.substr(dot + 1)) : member;
}

// Returns the refused value of a key as the document gives it, under one of its names.
Json given_value(const Key& key, const Json& document) {
  std::vector<std::string> names{key.path};
  if (!key.other.empty()) names.push_back(key.other_path());
  if (key.path.starts_with("bf16.")) names.push_back("bfloat16." + key.path.substr(5));
  for (const std::string& name : names) {
    if (const Json* value = member_at(document, name)) return *value;
  }
  return {};
}

// Puts a value at the dotted path, creating missing sections.
void put(Json& root, const std::string& path, const Json& value) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return root.set(path, value);
  const std::string section = path.substr(0, dot);
  if (!root.find(section)) root.set(section, Json::Object{});
  for (auto& [name, member] : root.object()) {
    if (name == section) put(member, path.substr(dot + 1), value);
  }
}

}  // namespace

std::string Config::shared_text() const {
  // Keys that may differ between ranks.
  constexpr std::string_view kOwn[] = {"run.dir", "run.threads", "run.pin_threads", "communicator",
                                       "device",  "data.paths",  "data.tokenizer",  "model.folder"};
  std::string out;
  for (const Key& key : config_keys()) {
    bool own = contains(kOwn, key.path);
    if (own || key.path.ends_with("nvme_path")) continue;
    // The default adds no line, so that plans keep the hashes from before this key existed.
    if (key.path == "loss_average" && !by_tokens()) continue;
    const Json value = key.get(*this);
    if (!value.is_null()) out += key.path + " " + value.dump() + "\n";
  }
  return out;
}

Json Config::effective() const {
  Json values = Json::Object{};
  Json from = Json::Object{};
  for (const Key& key : config_keys()) {
    const Json value = key.get(*this);
    if (value.is_null()) continue;
    put(values, key.path, value);
    const auto origin = origins.find(key.path);
    from.set(key.path, origin == origins.end() ? "default" : origin->second);
  }
  Json out = Json::Object{};
  out.set("schema", 1);
  out.set("config", values);
  out.set("origins", from);
  return out;
}

std::string config_text(const Config& config, const ConfigRefusals& refusals,
                        const Json& document) {
  struct Row {
    std::string path, value, origin;
  };
  std::vector<Row> rows;
  size_t path_width = 0, value_width = 0;
  // A value wider than this does not widen the column of values.
  constexpr size_t kWidest = 40;
  for (const Key& key : config_keys()) {
    const Json value = key.get(config);
    if (value.is_null()) continue;
    rows.push_back({key.path, value.dump(), config.origins.at(key.path)});
    if (rows.back().origin == kRefused) rows.back().value = given_value(key, document).dump();
    if (contains(config.waiting, key.path))
      rows.back().origin = "auto, from the model's width once there is one";
    path_width = std::max(path_width, rows.back().path.size());
    value_width = std::max(value_width, std::min(kWidest, rows.back().value.size()));
  }
  std::string out;
  section(out, "Refused:", messages(refusals));
  section(out, "Warnings:", config.warnings);
  section(out, "Without effect here:", config.without_effect);
  for (const Row& row : rows)
    out += fmt::format("{:<{}}  {:<{}}  {}\n", row.path, path_width, row.value, value_width,
                       row.origin);
  return out;
}

Json config_json(const Config& config, const ConfigRefusals& refusals, const Json& document) {
  Json out = config.effective();
  for (const Key& key : config_keys()) {
    if (config.origins.at(key.path) != kRefused || key.get(config).is_null()) continue;
    for (auto& [name, member] : out.object()) {
      if (name == "config") put(member, key.path, given_value(key, document));
    }
  }
  out.set("without_effect", texts(config.without_effect));
  out.set("warnings", texts(config.warnings));
  out.set("refusals", texts(messages(refusals)));
  return out;
}

void log_warnings(const Config& config) {
  for (const std::string& warning : config.warnings) log_line(LogLevel::warning, warning);
}

}  // namespace ds
