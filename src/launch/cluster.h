#pragma once
#include <string>
#include <vector>

#include "launch/starter.h"

namespace ds {

// Runs the command once per slot of the hosts: by mpirun (which starts its daemons over ssh) or
// srun, with comm url "mpi", or by ssh alone, with a tcp:// url. Returns the same codes as
// launch(), and names the rank that failed first and its host in one line on stderr. The first
// SIGINT or SIGTERM is forwarded to the ranks as SIGINT, a first SIGHUP as SIGTERM; a later SIGINT
// or SIGTERM ends the job. If the launcher dies, the ranks on all hosts end, too. A restart uses
// the hosts that are available at that time.
//
// Throws std::invalid_argument if no host has a slot, if a host's name is malformed, if ssh cannot
// log in to a host or the host lacks a program, or if mpirun, srun or ssh is missing; throws
// std::system_error if the system refuses a process or a pipe. Call this from a process with one
// thread.
int launch_on_hosts(const ClusterOptions& options, const std::vector<std::string>& command);

}  // namespace ds
