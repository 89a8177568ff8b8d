#include "launch/process.h"

#include <fmt/core.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>

#include "launch/strings.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// Calls `body` for the entries of a folder. Errors end the loop silently, because entries of /proc
// may vanish.
void each_entry(const std::string& folder, const std::function<void(const fs::path&)>& body) {
  std::error_code error;
  fs::directory_iterator entries(folder, error), end;
  for (; !error && entries != end; entries.increment(error)) body(entries->path());
}

}  // namespace

std::string name_of(pid_t process) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", process)), name);
  return name;
}

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  each_entry(fmt::format("/proc/{}/task", process), [&](const fs::path& thread) {
    std::string line;
    std::getline(std::ifstream(thread / "children"), line);
    for (const std::string& word : words_of(line)) {
      if (const int child = proc_number(word); child > 0) found.push_back(child);
    }
  });
  return found;
}

std::set<std::string> sockets_of(pid_t process) {
  constexpr std::string_view kBefore = "socket:[";
  std::set<std::string> found;
  each_entry(fmt::format("/proc/{}/fd", process), [&](const fs::path& file) {
    std::error_code closed;
    const std::string target = fs::read_symlink(file, closed).string();
    if (!closed && target.starts_with(kBefore))
      found.insert(target.substr(kBefore.size(), target.size() - kBefore.size() - 1));
  });
  return found;
}

int proc_number(std::string_view word, int base) {
  int number = -1;
  auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), number, base);
  return code == std::errc{} && end == word.data() + word.size() ? number : -1;
}

}  // namespace ds
