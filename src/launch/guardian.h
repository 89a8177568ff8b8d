#pragma once
#include <sys/types.h>

#include <chrono>

#include "launch/watch.h"

namespace ds {

// A process beside the launcher that outlives a kill -9 of it and then kills what it has left. The
// ranks themselves die with the launcher, but what a rank has started, such as the program that a
// rank's shell runs, would live on. The guardian finds all of it, whatever process group, session
// or parent it has by then, by the launcher's pipe in its environment.
class Guardian {
 public:
  // Call it in a process with one thread, before the first rank. What is left may end by itself for
  // `patience` before it is killed. Throws std::system_error.
  explicit Guardian(const LauncherPipe& pipe,
                    std::chrono::seconds patience = std::chrono::seconds(0));
  ~Guardian();  // the launcher ends as it should: nothing is killed
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

 private:
  pid_t pid_ = 0;
  int control_ = -1;
};

}  // namespace ds
