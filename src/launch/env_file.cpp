#include "launch/env_file.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <stdexcept>

#include "launch/strings.h"

namespace ds {

Variables parse_env_file(std::string_view text, std::string_view path) {
  Variables variables;
  size_t number = 0;
  for (std::string_view full : split(text, '\n')) {
    ++number;
    std::string_view line = trimmed(full);
    if (line.empty() || line.front() == '#') continue;
    size_t equals = line.find('=');
    std::string_view name = trimmed(line.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      throw std::invalid_argument(fmt::format(
          "environment file '{}', line {}: must be NAME=VALUE, got '{}'", path, number, line));
    }
    variables[std::string(name)] = trimmed(line.substr(equals + 1));
  }
  return variables;
}

Variables read_env_files(const std::string& name, const std::string& home,
                         const std::string& folder) {
  namespace fs = std::filesystem;
  Variables all;
  // A relative name means one file in each folder. An absolute name replaces both folders, so the
  // same file is read twice, with the same result.
  for (const std::string& place : {home, folder}) {
    if (place.empty()) continue;
    std::string path = (fs::path(place) / name).string();
    if (!fs::is_regular_file(path)) continue;
    std::optional<std::string> text = read_small_file(path, "environment file");
    if (!text) continue;
    for (auto& [key, value] : parse_env_file(*text, path)) all[key] = value;
  }
  return all;
}

}  // namespace ds
