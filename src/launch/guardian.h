#pragma once
#include <sys/types.h>

#include <chrono>

#include "launch/watch.h"

namespace ds {

// A process beside the launcher that survives a kill -9 of the launcher and then kills the
// processes that are left. The ranks themselves die with the launcher, but the processes that a
// rank has started, such as the program that a rank's shell runs, would live on. The guardian finds
// every process that still has the launcher's pipe in its environment, whatever process group,
// session or parent it has by then.
class Guardian {
 public:
  // Call this in a process with one thread, before the first rank starts. Processes that are left
  // have `patience` to end by themselves before they are killed. Throws std::system_error.
  explicit Guardian(const LauncherPipe& pipe,
                    std::chrono::seconds patience = std::chrono::seconds(0));
  // Ends the guardian; no process is killed.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

 private:
  pid_t pid_ = 0;
  int control_ = -1;
};

}  // namespace ds
