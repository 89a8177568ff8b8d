#include "core/graph/readers.h"

namespace ds {

std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (ValueId in : node.in) ++readers[static_cast<size_t>(in)];
  }
  for (ValueId out : graph.outputs) ++readers[static_cast<size_t>(out)];
  return readers;
}

}  // namespace ds
