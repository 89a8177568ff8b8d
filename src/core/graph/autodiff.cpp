// Reverse-mode differentiation of a graph.
//
// Problem: append nodes that compute the gradients of one scalar with respect to the parameters.
//
// Invariant: when the loop reaches a node, the gradients of its results are complete, since all
// readers of a result come later in the order of nodes.
//
// Algorithm: walk the nodes backwards, let the backward rule of each append its part, and add up
// contributions to one value. Nodes that are not on a path from a wanted value to the loss are
// skipped.
//
// Cost: one pass over the nodes and one `add` for each additional reader of a value.
#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

// Marks trained parameters, the values `wrt`, and all values that depend on either. Only marked
// values get gradients.
IdVector<ValueId, bool> values_wanting_gradient(const Graph& graph,
                                                const std::vector<ValueId>& wrt) {
  IdVector<ValueId, bool> wanted(graph.values.size(), false);
  for (const Parameter& param : graph.params) wanted[param.value] = !param.frozen;
  for (ValueId value : wrt) wanted.at(value) = true;
  for (const Node& node : graph.nodes) {
    bool any = false;
    for (ValueId in : node.in) any = any || wanted[in];
    for (ValueId out : node.out) wanted[out] = wanted[out] || any;
  }
  return wanted;
}

}  // namespace

ValueId BackwardContext::first_grad() const {
  for (size_t i = 1; i < output_grads.size(); ++i) {
    require(!output_grads[i].exists(), "{}: output {} '%{}' is not differentiable", node.op, i,
            graph.values[node.out[i]].name);
  }
  return output_grads[0];
}

// Results are named after the forward operands, so that a graph's text shows what each is the
// gradient of.
ValueId BackwardContext::emit(std::string_view op_name, const std::vector<ValueId>& in, Attrs attrs,
                              const std::vector<size_t>& forward_inputs) {
  bool any = false;
  for (size_t i : forward_inputs) any = any || wanted[i];
  if (!any) return none;
  ValueId first = graph.add(op_name, in, std::move(attrs));
  ValueId out = first;
  for (size_t i : forward_inputs) {
    graph.rename_value(out++, unique_name(graph, "d." + graph.values[node.in[i]].name));
  }
  return first;
}

void differentiate(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt,
                   std::vector<ValueId>* input_grads) {
  require(!graph.backward_begin.exists(), "graph '{}' already has a backward part at node {}",
          graph.name, graph.backward_begin);
  require(graph.values.has(loss) && graph.type(loss).shape.rank() == 0,
          "loss must be a scalar value, got {}",
          graph.values.has(loss) ? graph.type(loss).text() : fmt::format("{}", loss));
  IdVector<ValueId, bool> wanted = values_wanting_gradient(graph, wrt);
  NodeId begin = graph.nodes.past();
  IdVector<ValueId, ValueId> grad(graph.values.size());
  graph.backward_begin = begin;
  // If the loss depends on no wanted value, the backward part is empty.
  if (wanted[loss]) {
    Attrs seed{{"value", 1.0}, {"dtype", dtype_name(graph.type(loss).dtype)}};
    grad[loss] = graph.add("fill", {}, seed, unique_name(graph, "d." + graph.values[loss].name));
  }
  for (NodeId id = begin - 1; id.exists(); --id) {
    // A copy, since rules append to graph.nodes.
    const Node node = graph.nodes[id];
    BackwardContext context{graph, node, {}, {}};
    bool reached = false, any_wanted = false;
    for (ValueId out : node.out) {
      context.output_grads.push_back(grad[out]);
      reached = reached || grad[out].exists();
    }
    for (ValueId in : node.in) {
      context.wanted.push_back(wanted[in]);
      any_wanted = any_wanted || wanted[in];
    }
    if (!reached || !any_wanted) continue;
    const OpDef& row = op(node.op);
    require(static_cast<bool>(row.backward), "op '{}' of value %{} has no gradient", node.op,
            graph.values[node.out[0]].name);
    std::vector<ValueId> contributions = row.backward(context);
    for (size_t k = 0; k < node.in.size(); ++k) {
      ValueId value = node.in[k], add = contributions[k];
      if (!add.exists() || !wanted[value]) continue;
      // The order of sums is part of the numerics: later consumers come first.
      ValueId& sum = grad[value];
      sum = !sum.exists() ? add
                          : graph.add("add", {sum, add}, {},
                                      unique_name(graph, "d." + graph.values[value].name));
    }
  }
  for (Parameter& param : graph.params) param.grad = grad[param.value];
  if (!input_grads) return;
  input_grads->clear();
  for (ValueId value : wrt) input_grads->push_back(grad[value]);
}

}  // namespace ds
