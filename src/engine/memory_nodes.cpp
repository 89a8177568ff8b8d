#include "engine/memory_nodes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ds {

int memory_node_of(const HostTopology& host, const std::vector<int>& cpus) {
  if (host.nodes.size() < 2 || cpus.empty()) return -1;
  for (const HostTopology::Node& node : host.nodes) {
    const bool all = std::all_of(cpus.begin(), cpus.end(), [&](int cpu) {
      return std::find(node.cpus.begin(), node.cpus.end(), cpu) != node.cpus.end();
    });
    if (all) return node.number;
  }
  return -1;
}

int ranks_per_memory_node(Communicator& comm, int node, int ranks_per_node) {
  const auto ranks = static_cast<size_t>(comm.size()),
             machine = static_cast<size_t>(ranks_per_node);
  const auto mine = static_cast<int32_t>(node);
  std::vector<int32_t> all(ranks);
  comm.all_gather(&mine, all.data(), sizeof mine, "ranks per memory node");
  // The first ranks that share a memory node determine the length of a row; all other rows must
  // have the same length.
  size_t row = 1;
  while (row < machine && all[row] == all[0]) ++row;
  if (row == machine || ranks % row != 0 || machine % row != 0) return 0;
  for (size_t r = 0; r < ranks; ++r) {
    const size_t first = r / row * row;
    if (all[r] < 0 || all[r] != all[first]) return 0;
    // A node must appear only once on its machine: its ranks are numbered consecutively.
    for (size_t other = r / machine * machine; other < first; ++other) {
      if (all[other] == all[r]) return 0;
    }
  }
  return static_cast<int>(row);
}

}  // namespace ds
