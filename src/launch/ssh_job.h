#pragma once
#include <string>
#include <vector>

#include "launch/env_file.h"
#include "launch/restarts.h"
#include "launch/starter.h"

namespace ds {

// Runs a job by ssh alone and returns how it ended. Each host has an agent, which reads variables
// and orders from its standard input; the end of that stream ends the agent, however the launcher
// or the connection ended. `variables` are for the ranks, and `token` is the secret of the agents'
// records. `options` must be complete: every host has slots, and the port is set.
JobEnd run_over_ssh(const ClusterOptions& options, const Variables& variables,
                    const std::string& token, const std::vector<std::string>& command);

}  // namespace ds
