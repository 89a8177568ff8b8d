#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "launch/env_file.h"
#include "launch/watch.h"

namespace ds {

// What a rank finds in its environment.
struct RankPlace {
  int rank = 0, size = 1;              // RANK, WORLD_SIZE
  int local_rank = 0, local_size = 1;  // LOCAL_RANK, LOCAL_SIZE: among the ranks of its host
  int cross_rank = 0, cross_size = 1;  // CROSS_RANK, CROSS_SIZE: its host among the hosts
  std::string host;                    // in messages; "": this one, unnamed
  std::string url;                     // DS_COMM_URL
  std::string key;                     // DS_JOB_KEY; "": as this process has it
  std::string master_host;             // MASTER_ADDR
  int master_port = 0;                 // MASTER_PORT
  Variables more;                      // what else it finds
};

struct Started {
  pid_t pid = 0;
  int error = 0;  // errno of exec; then there is no process
};

struct StartOptions {
  const LauncherPipe* pipe = nullptr;  // the reading end is inherited
  sigset_t mask{};                     // the new process's
  int input = -1;                      // its standard input; -1: empty
  int output = -1, errors = -1;        // its standard output and error; -1: this process's
  int death_signal = SIGKILL;          // when the calling thread ends
  std::vector<int> cpus{};             // those that it may use; empty: as this process
};

// Starts `command` (found on PATH) with this process's environment and `variables` (NAME=VALUE) in
// place of those of the same names: leader of its own process group. Returns when the program is
// running. Throws std::system_error.
Started start_process(const std::vector<std::string>& command,
                      const std::vector<std::string>& variables, const StartOptions& options);

// NAME=VALUE of a place.
std::vector<std::string> variables_of(const RankPlace& place);

// shm://launch-<pid>-<random>
std::string fresh_url();

// 32 random bytes in hexadecimal: the key by which the ranks of one job that connect over a network
// know each other, or the token of a launcher's records. It goes on in environments or over an ssh
// connection, never on a command line. Throws std::system_error.
std::string fresh_secret();

}  // namespace ds
