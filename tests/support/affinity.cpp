#include "support/affinity.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace ds::test {

std::map<std::string, std::string> allowed_cpus() {
  const std::string field = "Cpus_allowed_list:\t";
  std::map<std::string, std::string> out;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(field)) out[task.path().filename()] = line.substr(field.size());
    }
  }
  return out;
}

std::vector<std::string> allowed_since(const std::map<std::string, std::string>& before) {
  std::vector<std::string> out;
  for (const auto& [thread, cpus] : allowed_cpus()) {
    if (!before.count(thread)) out.push_back(cpus);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ds::test
