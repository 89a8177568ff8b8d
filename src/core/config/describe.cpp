#include "core/config/describe.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/config/schema.h"

namespace ds {
namespace {

void section(std::string& out, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  out += fmt::format("\n{}\n", title);
  for (const std::string& line : lines) out += "  " + line + "\n";
}

std::vector<std::string> messages(const ConfigRefusals& refusals) {
  std::vector<std::string> lines;
  for (const Error& error : refusals.errors) lines.emplace_back(error.what());
  return lines;
}

Json texts(const std::vector<std::string>& lines) { return Json(Json::Array(lines.begin(), lines.end())); }

}  // namespace

std::string config_text(const Config& config, const ConfigRefusals& refusals) {
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
    if (std::find(config.waiting.begin(), config.waiting.end(), key.path) != config.waiting.end())
      rows.back().origin = "auto, from the model's width once there is one";
    path_width = std::max(path_width, rows.back().path.size());
    value_width = std::max(value_width, std::min(kWidest, rows.back().value.size()));
  }
  std::string out;
  for (const Row& row : rows)
    out += fmt::format("{:<{}}  {:<{}}  {}\n", row.path, path_width, row.value, value_width, row.origin);
  section(out, "Without effect here:", config.without_effect);
  section(out, "Warnings:", config.warnings);
  section(out, "Refused:", messages(refusals));
  return out;
}

Json config_json(const Config& config, const ConfigRefusals& refusals) {
  Json out = config.effective();
  out.set("without_effect", texts(config.without_effect));
  out.set("warnings", texts(config.warnings));
  out.set("refusals", texts(messages(refusals)));
  return out;
}

void log_warnings(const Config& config) {
  for (const std::string& warning : config.warnings) log_line(LogLevel::warning, warning);
}

}  // namespace ds
