#pragma once
#include <string>
#include <vector>

#include "launch/starter.h"

namespace ds {

// Runs the command once per slot of the hosts, over mpirun (which starts its daemons by ssh) or
// srun, where url mpi carries the data, or over ssh alone, where tcp does. As launch() does:
// returns 0, or the code of the rank that failed first, which one line on stderr names with its
// host; the first SIGINT or SIGTERM reaches the ranks as SIGINT, a first SIGHUP as SIGTERM, a later
// one ends the job. When the launcher dies, so do the ranks on all hosts. A restart is made on the
// hosts that can be used then. Throws std::invalid_argument: no slot, a name of a host that is
// none, a host that ssh cannot log in to or that lacks a program, no mpirun, srun or ssh;
// std::system_error. Call it from a process with one thread.
int launch_on_hosts(const ClusterOptions& options, const std::vector<std::string>& command);

}  // namespace ds
