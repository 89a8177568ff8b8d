#include "passes/fused_head.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/ops.h"
#include "core/graph/readers.h"

namespace ds {

namespace {

// A weight that gets no gradient; the operation of a head would make one.
bool is_frozen(const Graph& graph, ValueId weight) {
  return std::any_of(graph.params.begin(), graph.params.end(),
                     [&](const Parameter& p) { return p.value == weight && p.frozen; });
}

}  // namespace

int fuse_head(Graph& graph, int64_t fewest_words, bool kept) {
  IdVector<ValueId, int> readers = count_readers(graph);
  for (const GraphOutput& out : graph.outputs)
    --readers[out.value];  // an output does not keep the pair
  int replaced = 0;
  for (NodeId i : graph.nodes.ids()) {
    const Node& loss = graph.nodes[i];
    const std::string& over_linear = op(loss.op).over_linear;
    if (over_linear.empty() || readers[loss.in[0]] != 1) continue;
    NodeId producer = graph.values[loss.in[0]].producer;
    if (!producer.exists()) continue;
    const Node& head = graph.nodes[producer];
    bool plain =
        op(head.op).linear && head.in.size() == 2 && head.attrs.integer_or("transposed", 0) == 0;
    if (!plain || graph.type(head.in[1]).shape[0].extent < fewest_words) continue;
    if (kept && is_frozen(graph, head.in[1])) continue;
    Node fused{over_linear, {head.in[0], head.in[1], loss.in[1]}, loss.out, loss.attrs};
    if (kept) fused.attrs.set("kept", 1);
    std::vector<TensorType> in;
    for (ValueId value : fused.in) in.push_back(graph.type(value));
    std::vector<TensorType> types = op(fused.op).infer(in, fused.attrs);
    const std::string name = graph.values[loss.out[0]].name;
    for (size_t k = fused.out.size(); k < types.size(); ++k) {
      fused.out.push_back(graph.append_value({unique_name(graph, name + ".room"), types[k], i}));
    }
    graph.nodes[i] = std::move(fused);
    ++replaced;
  }
  return replaced;
}

}  // namespace ds
