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

ValueId rewards_of(const Graph& graph) {
  for (const GraphOutput& out : graph.outputs) {
    const NodeId producer = graph.values[out.value].producer;
    if (!producer.exists()) continue;
    const Node& node = graph.nodes[producer];
    if (node.op == "preference_loss" && node.out[1] == out.value) return out.value;
  }
  return {};
}

}  // namespace ds
