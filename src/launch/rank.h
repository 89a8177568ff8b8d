#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "launch/env_file.h"
#include "launch/watch.h"

namespace ds {

// The place of a rank in its job. The rank gets it in its environment, as RANK and WORLD_SIZE,
// LOCAL_RANK and LOCAL_SIZE (among the ranks of its host), CROSS_RANK and CROSS_SIZE (its host
// among all hosts), DS_COMM_URL, DS_JOB_KEY, MASTER_ADDR and MASTER_PORT.
struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
  // The name of the host in messages; "": this host, which messages do not name.
  std::string host;
  std::string url;
  // The value of DS_JOB_KEY; "": the rank inherits DS_JOB_KEY from this process.
  std::string key;
  std::string master_host;
  int master_port = 0;
  // Additional variables by name.
  Variables more;
};

// The result of starting a process.
struct Started {
  pid_t pid = 0;
  // The errno of exec, or of binding to the CPUs before it, if that failed; the process has then
  // ended. Otherwise 0.
  int error = 0;
};

struct StartOptions {
  // The new process inherits one end of this pipe; null: no pipe.
  const LauncherPipe* pipe = nullptr;
  // The signal mask of the new process.
  sigset_t mask{};
  // The standard input of the new process; -1: empty.
  int input = -1;
  // The standard output and error of the new process; -1: those of this process.
  int output = -1, errors = -1;
  // The signal that the new process gets when the calling thread ends.
  int death_signal = SIGKILL;
  // The CPUs that the new process may use; empty: those of this process.
  std::vector<int> cpus{};
};

// Starts `command`, which is searched for on PATH, as the leader of a new process group. It
// inherits the environment of this process, in which `variables` (NAME=VALUE) replace variables of
// the same names. Returns when exec has succeeded or failed. Throws std::system_error if the
// process cannot be created.
Started start_process(const std::vector<std::string>& command,
                      const std::vector<std::string>& variables, const StartOptions& options);

// Returns the variables of a place, as NAME=VALUE.
std::vector<std::string> variables_of(const RankPlace& place);

// Returns a fresh comm url, shm://launch-<pid>-<random>.
std::string fresh_url();

// Returns 32 random bytes in hexadecimal, for the key by which the ranks of a job recognize each
// other on a network, or for the token of a launcher's records. A secret is passed in environments
// or over an ssh connection, never on a command line. Throws std::system_error.
std::string fresh_secret();

}  // namespace ds
