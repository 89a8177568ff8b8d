#pragma once
#include <string>
#include <vector>

#include "launch/job.h"
#include "launch/restarts.h"

namespace ds {

struct LaunchOptions {
  int ranks = 1;
  // MASTER_PORT, for commands that use it; 0: a port that is free now.
  int master_port = 0;
  JobOptions job;
  RestartOptions restarts;
};

// Runs `command`, which is searched for on PATH, once per rank on this host and waits for all
// ranks. Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE,
// MASTER_ADDR, MASTER_PORT, DS_COMM_URL (a fresh shm:// name), DS_JOB_KEY (a fresh key) and an
// empty standard input. Each rank leads a process group, which is killed when the rank ends, and
// dies with the calling thread; the processes that it has started are killed when this process
// dies.
//
// Returns 0 if every rank returned 0, and kStoppedCode if some ranks returned that and all others
// returned 0. Otherwise returns the code of the rank that failed first: its exit code, 128 + n if
// signal n killed it, 127 or 126 if the command cannot be found or run. One line on stderr names
// that rank. `restarts` says how often a failed job is started again, always with all its ranks;
// the function then returns the code of the last failure. The first SIGINT or SIGTERM to this
// process is forwarded to the ranks as SIGINT, a first SIGHUP as SIGTERM, a later SIGINT or SIGTERM
// as SIGKILL.
//
// Throws std::invalid_argument (ranks below 1, no command, a port that is taken) and
// std::system_error (the system cannot start a process, a log cannot be written). Call this from a
// process with one thread: the signals above, SIGUSR1, SIGUSR2 and SIGCHLD are blocked during the
// call.
int launch(const LaunchOptions& options, const std::vector<std::string>& command);

}  // namespace ds
