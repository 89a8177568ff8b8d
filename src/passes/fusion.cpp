#include "passes/fusion.h"

#include <string>

#include "core/graph/ops.h"
#include "core/graph/readers.h"

namespace ds {
void fuse(Graph& graph) {
  IdVector<ValueId, int> readers = count_readers(graph);
  for (Node& node : graph.nodes) {
    const std::string& gated = op(node.op).gated;
    if (gated.empty()) continue;
    for (size_t side : {size_t{0}, size_t{1}}) {
      const Value& value = graph.values[node.in[side]];
      if (!value.producer.exists() || readers[node.in[side]] != 1) continue;
      const Node& maker = graph.nodes[value.producer];
      const auto& activation = op(maker.op).activation;
      if (!activation || graph.type(node.in[side]).shape.rank() != 2) continue;
      node = {
          gated, {maker.in[0], node.in[1 - side]}, node.out, {{"act", activation(maker.attrs)}}};
      break;
    }
  }
}

}  // namespace ds
