#include "core/graph/readers.h"

namespace ds {

IdVector<ValueId, int> count_readers(const Graph& graph) {
  IdVector<ValueId, int> readers(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (ValueId in : node.in) ++readers[in];
  }
  for (const GraphOutput& out : graph.outputs) ++readers[out.value];
  return readers;
}

}  // namespace ds
