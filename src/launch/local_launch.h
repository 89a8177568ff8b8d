#pragma once
#include <string>
#include <vector>

#include "launch/job.h"
#include "launch/restarts.h"

namespace ds {

struct LaunchOptions {
  int ranks = 1;
  int master_port = 0;  // MASTER_PORT, for programs that look for one; 0: one that is free now
  JobOptions job;
  RestartOptions restarts;
};

// Runs `command` (found on PATH) once per rank on this host and waits for all of them. Each rank
// gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE, MASTER_ADDR, MASTER_PORT,
// DS_COMM_URL (a fresh shm:// name), DS_JOB_KEY (a fresh key) and an empty standard input; it leads
// a process group of its own, whose remains are killed when it ends, and dies with the calling
// thread; what it has started is killed when this process is.
//
// Returns 0 when every rank returned 0, kStoppedCode when some returned that and all others 0, else
// the code of the rank that failed first: its exit code, 128 + n when signal n killed it, 127 or
// 126 when the command cannot be found or run. One line on stderr names that rank. `restarts` says
// how often such a job is started again, always with all its ranks; the code is then that of the
// last failure. The first SIGINT or SIGTERM to this process reaches the ranks as SIGINT, a first
// SIGHUP as SIGTERM, a later SIGINT or SIGTERM as SIGKILL. Throws std::invalid_argument (ranks
// below 1, no command, a port that is taken) and std::system_error (the system has no process, a
// log cannot be written). Call it from a process with one thread: the signals above, SIGUSR1,
// SIGUSR2 and SIGCHLD are blocked for the time of the call.
int launch(const LaunchOptions& options, const std::vector<std::string>& command);

}  // namespace ds
