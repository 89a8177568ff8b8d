#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "launch/binding.h"
#include "launch/env_file.h"
#include "launch/hostfile.h"
#include "launch/restarts.h"
#include "launch/ssh.h"

namespace ds {

enum class Starter { mpirun, srun, ssh };

// A job over several hosts, and how to start it.
struct ClusterOptions {
  // The hosts in the order of ranks.
  Hosts hosts;
  Starter starter = Starter::mpirun;
  // Additional options for the starter, separated by blanks.
  std::string extra;
  // The path of the libds program, the same on all hosts.
  std::string program;
  // The working folder of the command, the same on all hosts.
  std::string folder;
  // A folder for logs on each host; "": no logs.
  std::string log_dir;
  // MASTER_PORT. 0: a port that is free now if the first host is this host, otherwise 29500.
  int master_port = 0;
  // Variables for all ranks, in addition to the variables of this process for which forwarded() is
  // true.
  Variables variables;
  SshOptions ssh;
  Binding binding = Binding::none;
  // Whether to log in to all hosts before the first start.
  bool ssh_check = true;
  RestartOptions restarts;
};

// Returns whether ranks on other hosts get this variable of the launcher.
bool forwarded(std::string_view name);

// Returns the command line that starts the agent of one host: a call of ssh or, on this host, the
// agent itself. `host` is an index into options.hosts; `url` is the comm url of the ranks.
std::vector<std::string> ssh_agent_words(const ClusterOptions& options, size_t host,
                                         const std::string& url,
                                         const std::vector<std::string>& command);

// Returns the command line of mpirun or srun. `names` has the variables that mpirun copies from its
// environment to the ranks. Throws std::invalid_argument if the starter cannot start such a job.
std::vector<std::string> starter_words(const ClusterOptions& options,
                                       const std::vector<std::string>& names,
                                       const std::vector<std::string>& command);

}  // namespace ds
