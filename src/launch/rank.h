#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "launch/watch.h"

namespace ds {

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  std::string url;  // DS_COMM_URL
  const LauncherPipe* pipe = nullptr;
};

struct Started {
  pid_t pid = 0;
  int error = 0;  // errno of exec; then there is no process
};

// Starts one rank: leader of its own process group, standard input empty, signal mask `mask`, SIGKILL when
// the calling thread ends, the reading end of the pipe inherited. Returns when the program is running. Throws
// std::system_error.
Started start_rank(const std::vector<std::string>& command, const RankEnvironment& environment,
                   const sigset_t& mask);

// shm://launch-<pid>-<random>
std::string fresh_url();

}  // namespace ds
