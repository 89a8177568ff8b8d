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

struct ClusterOptions {
  Hosts hosts;  // in the order of ranks
  Starter starter = Starter::mpirun;
  std::string extra;    // more options for the starter, separated by blanks
  std::string program;  // path of libds, the same on all hosts
  std::string folder;   // the command's working folder, the same on all hosts
  std::string log_dir;  // on the host of each rank; "": no logs
  int master_port = 0;  // 0: one that is free now where the first host is this one, else 29500
  Variables variables;  // for all ranks, beside this process's variables that forwarded() names
  SshOptions ssh;
  Binding binding = Binding::none;
  bool ssh_check = true;  // before the first start
  RestartOptions restarts;
};

// Whether the ranks on other hosts get this variable of the launcher.
bool forwarded(std::string_view name);

// What runs over ssh on one host, "ssh" and all; on this host, what ssh would run. `url`: what
// carries the data.
std::vector<std::string> ssh_agent_words(const ClusterOptions& options, size_t host,
                                         const std::string& url,
                                         const std::vector<std::string>& command);

// The command line of mpirun or srun. `names`: the variables that mpirun takes from its own
// environment. Throws std::invalid_argument for what the starter cannot do.
std::vector<std::string> starter_words(const ClusterOptions& options,
                                       const std::vector<std::string>& names,
                                       const std::vector<std::string>& command);

}  // namespace ds
