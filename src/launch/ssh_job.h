#pragma once
#include <string>
#include <vector>

#include "launch/env_file.h"
#include "launch/restarts.h"
#include "launch/starter.h"

namespace ds {

// A job by ssh alone: an agent on each host, whose standard input brings variables and orders and
// whose end ends the agent, however the launcher or the connection ended. Its options are complete:
// hosts with slots, a port.
JobEnd run_over_ssh(const ClusterOptions& options, const Variables& variables,
                    const std::string& token, const std::vector<std::string>& command);

}  // namespace ds
