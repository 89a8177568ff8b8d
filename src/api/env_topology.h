#pragma once
#include <string>

#include "core/base/json.h"
#include "machine/host_topology.h"

namespace ds {

// Lines of ds_env_report about what lies near what.
std::string topology_text(const HostTopology& host);
Json topology_json(const HostTopology& host);

}  // namespace ds
