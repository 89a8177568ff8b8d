#pragma once
#include <string>

#include "core/base/json.h"
#include "machine/host_topology.h"

namespace ds {

// These return the part of ds_env_report that describes how cores, memory, GPUs and networks are
// connected.
std::string topology_text(const HostTopology& host);
Json topology_json(const HostTopology& host);

}  // namespace ds
