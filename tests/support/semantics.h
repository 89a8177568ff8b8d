#pragma once
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/json.h"

namespace ds::test {

// A file of recorded DeepSpeed semantics: of the folder that DS_SEMANTICS names, else of
// tests/data/semantics.
inline std::string semantics_path(const std::string& name) {
  const char* folder = std::getenv("DS_SEMANTICS");
  return std::string(folder && *folder ? folder : DS_SOURCE_DIR "/tests/data/semantics") + "/" + name;
}

inline Json read_semantics(const std::string& name) {
  const std::string path = semantics_path(name);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return Json::parse(text.str(), path);
}

}  // namespace ds::test
