#pragma once
#include <vector>

#include "comm/communicator.h"
#include "machine/host_topology.h"

namespace ds {

// The memory node (NUMA) of the host that has all of these CPUs; -1 where the host has only one,
// where they lie on several, or where nothing is known.
int memory_node_of(const HostTopology& host, const std::vector<int>& cpus);

// How many neighbours share a memory node, where every node of every machine has as many ranks,
// numbered in a row, and a machine has several; else 0. `node`: that of this rank; ranks_per_node:
// as of the function of that name. Collective.
int ranks_per_memory_node(Communicator& comm, int node, int ranks_per_node);

}  // namespace ds
