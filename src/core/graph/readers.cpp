#include "core/graph/readers.h"

namespace ds {

IdVector<ValueId, int> count_readers(const Graph& graph) {
  IdVector<ValueId, int> readers(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (ValueId in : node.in) ++readers[in];
  }
  for (ValueId out : graph.outputs) ++readers[out];
  return readers;
}

}  // namespace ds
