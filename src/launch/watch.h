#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

// A pair of connected sockets: the launcher keeps one end, and every descendant of a rank inherits
// the other end. When the launcher ends, in whatever way, the kernel closes its end, which the
// inherited end shows as a hangup. A rank whose group ends because of another rank reports that
// over the inherited end (comm/blame.h).
class LauncherPipe {
 public:
  // Throws std::system_error.
  LauncherPipe();
  ~LauncherPipe();
  LauncherPipe(const LauncherPipe&) = delete;
  LauncherPipe& operator=(const LauncherPipe&) = delete;
  // Returns the inherited end. A rank clears its close-on-exec flag.
  int inherited() const { return ends_[0]; }
  // Returns the variable "DS_LAUNCHER_PIPE=descriptor:inode", which names the inherited end.
  std::string variable() const;
  // Returns the reports of ranks since the last call, as pairs of a rank and the rank that it has
  // lost.
  std::vector<std::pair<int, int>> taken() const;

 private:
  int ends_[2];
};

// In a descendant of a launcher's rank, starts a thread that waits for the end of the launcher,
// then reports that in one line on stderr and ends the process at once, with code 1 and without
// cleanup. In other processes, or if the inherited descriptor was closed, does nothing.
void watch_launcher();

}  // namespace ds
