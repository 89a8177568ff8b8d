#pragma once
#include <vector>

#include "comm/communicator.h"
#include "machine/host_topology.h"

namespace ds {

// Returns the memory node (NUMA) of the host that has all of these CPUs, or -1 if the host has only
// one node, if the CPUs are on several nodes, or if nothing is known.
int memory_node_of(const HostTopology& host, const std::vector<int>& cpus);

// Collective: returns the number of ranks per memory node if all nodes of all machines have equally
// many ranks, numbered consecutively, and a machine has several nodes; otherwise returns 0. `node`
// is the node of this rank, and `ranks_per_node` the result of ranks_per_node().
int ranks_per_memory_node(Communicator& comm, int node, int ranks_per_node);

}  // namespace ds
