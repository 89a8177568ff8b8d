#include "launch/reach.h"

#include <fmt/core.h>

#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process.h"
#include "launch/strings.h"

namespace ds {
namespace {

// The kernel waits at least 0.2 s before the first retransmission, and twice as long before each
// later one, so the seventh retransmission comes after about half a minute.
constexpr int kMostRepeats = 7;

// Returns whether a line of /proc/net/tcp is a connection of one of these sockets that keeps
// retransmitting. A line has a number, both ends, a state, queues, a timer, the number of
// retransmissions (hexadecimal), a user, a time-out and an inode. Timer 01 is the retransmission
// timer.
bool repeats_itself(std::string_view line, const std::set<std::string>& sockets) {
  const std::vector<std::string> words = words_of(line);
  if (words.size() < 10) return false;
  return proc_number(words[6], 16) >= kMostRepeats && words[5].starts_with("01:") &&
         sockets.contains(words[9]);
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
