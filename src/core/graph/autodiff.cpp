#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

size_t at(ValueId value) { return static_cast<size_t>(value); }

// Which values depend on a parameter or on one of `wrt`: only those get gradients.
std::vector<bool> values_wanting_gradient(const Graph& graph, const std::vector<ValueId>& wrt) {
  std::vector<bool> wanted(graph.values.size(), false);
  for (const Parameter& param : graph.params) wanted[at(param.value)] = !param.frozen;
  for (ValueId value : wrt) wanted.at(at(value)) = true;
  for (const Node& node : graph.nodes) {
    bool any = false;
    for (ValueId in : node.in) any = any || wanted[at(in)];
    for (ValueId out : node.out) wanted[at(out)] = wanted[at(out)] || any;
  }
  return wanted;
}

}  // namespace

ValueId BackwardContext::first_grad() const {
  for (size_t i = 1; i < output_grads.size(); ++i) {
    require(output_grads[i] < 0, "{}: output {} '%{}' is not differentiable", node.op, i,
            graph.values[at(node.out[i])].name);
  }
  return output_grads[0];
}

ValueId BackwardContext::emit(std::string_view op_name, const std::vector<ValueId>& in, Attrs attrs,
                              const std::vector<size_t>& forward_inputs) {
  bool any = false;
  for (size_t i : forward_inputs) any = any || wanted[i];
  if (!any) return -1;
  ValueId first = graph.add(op_name, in, std::move(attrs));
  ValueId out = first;
  for (size_t i : forward_inputs) {
    graph.rename_value(out++, unique_name(graph, "d." + graph.values[at(node.in[i])].name));
  }
  return first;
}

void differentiate(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt,
                   std::vector<ValueId>* input_grads) {
  require(graph.backward_begin < 0, "graph '{}' already has a backward part at node {}", graph.name,
          graph.backward_begin);
  require(loss >= 0 && at(loss) < graph.values.size() && graph.type(loss).shape.rank() == 0,
          "loss must be a scalar value, got {}",
          loss >= 0 && at(loss) < graph.values.size() ? graph.type(loss).text() : std::to_string(loss));
  std::vector<bool> wanted = values_wanting_gradient(graph, wrt);
  size_t forward_nodes = graph.nodes.size();
  std::vector<ValueId> grad(graph.values.size(), -1);
  graph.backward_begin = static_cast<NodeId>(forward_nodes);
  if (wanted[at(loss)]) {
    Attrs seed{{"value", 1.0}, {"dtype", dtype_name(graph.type(loss).dtype)}};
    grad[at(loss)] = graph.add("fill", {}, seed, unique_name(graph, "d." + graph.values[at(loss)].name));
  }
  for (size_t i = forward_nodes; i-- > 0;) {
    const Node node = graph.nodes[i];
    BackwardContext context{graph, node, {}, {}};
    bool reached = false, any_wanted = false;
    for (ValueId out : node.out) {
      context.output_grads.push_back(grad[at(out)]);
      reached = reached || grad[at(out)] >= 0;
    }
    for (ValueId in : node.in) {
      context.wanted.push_back(wanted[at(in)]);
      any_wanted = any_wanted || wanted[at(in)];
    }
    if (!reached || !any_wanted) continue;
    const OpDef& row = op(node.op);
    require(static_cast<bool>(row.backward), "op '{}' of value %{} has no gradient", node.op,
            graph.values[at(node.out[0])].name);
    std::vector<ValueId> contributions = row.backward(context);
    for (size_t k = 0; k < node.in.size(); ++k) {
      ValueId value = node.in[k], add = contributions[k];
      if (add < 0 || !wanted[at(value)]) continue;
      ValueId& sum = grad[at(value)];
      sum = sum < 0
                ? add
                : graph.add("add", {sum, add}, {}, unique_name(graph, "d." + graph.values[at(value)].name));
    }
  }
  for (Parameter& param : graph.params) param.grad = grad[at(param.value)];
  if (!input_grads) return;
  input_grads->clear();
  for (ValueId value : wrt) input_grads->push_back(grad[at(value)]);
}

}  // namespace ds
