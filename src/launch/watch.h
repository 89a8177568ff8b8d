#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

// A pair of sockets of which only the launcher has one end and every descendant of a rank inherits
// the other. It ends when the launcher does, in whatever way; and a rank whose group ends because
// of another rank says so there (comm/blame.h).
class LauncherPipe {
 public:
  LauncherPipe();  // throws std::system_error
  ~LauncherPipe();
  LauncherPipe(const LauncherPipe&) = delete;
  LauncherPipe& operator=(const LauncherPipe&) = delete;
  int inherited() const { return ends_[0]; }  // a rank clears its close-on-exec flag
  std::string variable() const;               // DS_LAUNCHER_PIPE=descriptor:inode
  // What ranks have said since the last call: a rank, and the one whose end or standstill it named.
  std::vector<std::pair<int, int>> taken() const;

 private:
  int ends_[2];
};

// In a process that descends from a launcher's rank: a thread waits for the launcher's end, then
// says so in one line on stderr and ends the process with code 1 at once, as a kill would.
// Elsewhere, or where someone closed the inherited descriptor, nothing.
void watch_launcher();

}  // namespace ds
