#include "passes/precision.h"

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

bool floating(DType dtype) {
  return dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F16 || dtype == DS_DTYPE_F64;
}

}  // namespace

void set_precision(Graph& graph, DType compute) {
  ensure(!graph.backward_begin.exists(), "precision of graph '{}' is set after differentiate", graph.name);
  for (Value& value : graph.values) {
    if (!value.producer.exists() && floating(value.type.dtype)) value.type.dtype = compute;
  }
  for (const Node& node : graph.nodes) {
    std::vector<TensorType> in;
    for (ValueId id : node.in) in.push_back(graph.type(id));
    std::vector<TensorType> out = op(node.op).infer(in, node.attrs);
    for (size_t k = 0; k < out.size(); ++k) graph.values[node.out[k]].type = out[k];
  }
}

void scale_loss(Graph& graph) {
  if (!graph.backward_begin.exists() || !graph.nodes.has(graph.backward_begin)) return;
  Node& seed = graph.nodes[graph.backward_begin];
  ensure(seed.op == "fill", "backward of graph '{}' begins with '{}'", graph.name, seed.op);
  seed.attrs.set("loss_scale", int64_t{1});
}

void cast_output(Graph& graph, size_t index) {
  ValueId value = graph.outputs.at(index).value;
  if (graph.type(value).dtype == DS_DTYPE_F32) return;
  std::string name = unique_name(graph, graph.values[value].name + ".f32");
  graph.outputs[index].value = graph.add("cast", {value}, {{"dtype", std::string("f32")}}, name);
}

}  // namespace ds
