#include "core/config/describe.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/config/document.h"
#include "core/config/schema.h"

namespace ds {
namespace {

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

const Json* member_at(const Json& document, const std::string& path) {
  const size_t dot = path.find('.');
  const Json* member = document.is_object() ? document.find(path.substr(0, dot)) : nullptr;
  return member && dot != path.npos ? member_at(*member, path.substr(dot + 1)) : member;
}

// The refused value of a key as the document gives it, under one of its names.
Json given_value(const Key& key, const Json& document) {
  std::vector<std::string> names{key.path};
  if (!key.other.empty()) names.push_back(key.path.substr(0, key.path.rfind('.') + 1) + key.other);
  if (key.path.starts_with("bf16.")) names.push_back("bfloat16." + key.path.substr(5));
  for (const std::string& name : names) {
    if (const Json* value = member_at(document, name)) return *value;
  }
  return {};
}

void put_at(Json& object, const std::string& path, const Json& value) {
  const size_t dot = path.find('.');
  if (dot == path.npos) return object.set(path, value);
  for (auto& [name, member] : object.object()) {
    if (name == path.substr(0, dot)) put_at(member, path.substr(dot + 1), value);
  }
}

}  // namespace

std::string config_text(const Config& config, const ConfigRefusals& refusals,
                        const Json& document) {
  struct Row {
    std::string path, value, origin;
  };
  std::vector<Row> rows;
  size_t path_width = 0, value_width = 0;
  constexpr size_t kWidest = 40;
  for (const Key& key : config_keys()) {
    const Json value = key.get(config);
    if (value.is_null()) continue;
    rows.push_back({key.path, value.dump(), config.origins.at(key.path)});
    if (rows.back().origin == kRefused) rows.back().value = given_value(key, document).dump();
    if (std::find(config.waiting.begin(), config.waiting.end(), key.path) != config.waiting.end())
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
      if (name == "config") put_at(member, key.path, given_value(key, document));
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
