#pragma once
#include <string>

namespace ds {

// A pipe whose writing end only the launcher has and whose reading end every descendant of a rank inherits:
// it ends when the launcher does, in whatever way.
class LauncherPipe {
 public:
  LauncherPipe();  // throws std::system_error
  ~LauncherPipe();
  LauncherPipe(const LauncherPipe&) = delete;
  LauncherPipe& operator=(const LauncherPipe&) = delete;
  int inherited() const { return ends_[0]; }  // a rank clears its close-on-exec flag
  std::string variable() const;               // DS_LAUNCHER_PIPE=descriptor:inode

 private:
  int ends_[2];
};

// In a process that descends from a launcher's rank: a thread waits for the launcher's end, then says so in
// one line on stderr and ends the process with code 1 at once, as a kill would. Elsewhere, or where someone
// closed the inherited descriptor, nothing.
void watch_launcher();

}  // namespace ds
