#include "passes/fusion.h"

#include <algorithm>

#include "core/graph/readers.h"

namespace ds {
namespace {

// The `act` of glu that a node computes; "" for other nodes.
std::string activation(const Node& node) {
  for (const char* act : {"silu", "relu", "tanh", "relu2", "laplace"}) {
    if (node.op == act) return node.op;
  }
  return node.op == "gelu" ? "gelu_" + std::string(node.attrs.text_or("form", "tanh")) : "";
}

}  // namespace

void fuse(Graph& graph) {
  std::vector<int> readers = count_readers(graph);
  for (Node& node : graph.nodes) {
    if (node.op != "mul") continue;
    for (size_t side : {size_t{0}, size_t{1}}) {
      const Value& value = graph.values[static_cast<size_t>(node.in[side])];
      if (value.producer < 0 || readers[static_cast<size_t>(node.in[side])] != 1) continue;
      const Node& maker = graph.nodes[static_cast<size_t>(value.producer)];
      std::string act = activation(maker);
      if (act.empty() || graph.type(node.in[side]).shape.rank() != 2) continue;
      node = {"glu", {maker.in[0], node.in[1 - side]}, node.out, {{"act", act}}};
      break;
    }
  }
}

}  // namespace ds
