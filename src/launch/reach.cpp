#include "launch/reach.h"

#include <fmt/core.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "launch/strings.h"

namespace ds {
namespace {

// The kernel waits 0.2 s or more before it first sends bytes again, and twice as long each further
// time.
constexpr int kMostRepeats = 7;

// The inodes of a process's sockets, in digits.
std::set<std::string> sockets_of(pid_t process) {
  constexpr std::string_view kBefore = "socket:[";
  std::set<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator files(fmt::format("/proc/{}/fd", process), error), end;
  for (; !error && files != end; files.increment(error)) {
    std::error_code closed;
    const std::string target = std::filesystem::read_symlink(files->path(), closed).string();
    if (!closed && target.starts_with(kBefore))
      found.insert(target.substr(kBefore.size(), target.size() - kBefore.size() - 1));
  }
  return found;
}

// A line of /proc/net/tcp: number, both ends, state, queues, timer, repeats (hexadecimal), user,
// time-out, inode. Timer 1 is that of bytes that have not arrived.
bool repeats_itself(std::string_view line, const std::set<std::string>& sockets) {
  const std::vector<std::string> words = words_of(line);
  if (words.size() < 10) return false;
  const std::string& repeats = words[6];
  int count = 0;
  std::from_chars(repeats.data(), repeats.data() + repeats.size(), count, 16);
  return count >= kMostRepeats && words[5].starts_with("01:") && sockets.contains(words[9]);
}

}  // namespace

bool is_cut_off(pid_t process) {
  const auto sockets = sockets_of(process);
  if (sockets.empty()) return false;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream lines(fmt::format("/proc/{}/net/{}", process, table));
    for (std::string line; std::getline(lines, line);) {
      if (repeats_itself(line, sockets)) return true;
    }
  }
  return false;
}

}  // namespace ds
