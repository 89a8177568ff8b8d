#include "passes/loss_weight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

// Returns whether a node only adds, scales or casts its operands, so that the terms of its result
// are those of its operands.
bool passes_on(const Node& node) {
  return node.op == "add" || node.op == "scale" || node.op == "cast";
}

// Returns the targets over which a node computes the mean, or a value that does not exist.
ValueId targets_of(const Node& node) {
  const std::optional<IdOperand>& ids = op(node.op).ids;
  const bool mean = ids && ids->targets && node.attrs.text_or("reduction", "mean") == "mean";
  return mean ? node.in[ids->ids] : ValueId();
}

[[noreturn]] void refuse(const Graph& graph, const std::string& got) {
  raise(DS_ERROR_CONFIG,
        "{}: \"tokens\" needs a loss that is the mean of cross_entropy over targets, perhaps with "
        "other terms added; output 0 '{}' of graph '{}' {}",
        KeyName("loss_average"), graph.outputs.at(0).name, graph.name, got);
}

}  // namespace

// Walks from the loss back to the operations that compute its terms. Terms without targets are
// allowed, but at least one term must be a mean over targets, and all such means must have the same
// targets.
void weigh_by_targets(Graph& graph) {
  ValueId targets;
  std::vector<std::string> others;
  std::vector<ValueId> open{graph.outputs.at(0).value};
  while (!open.empty()) {
    const Value& value = graph.values[open.back()];
    open.pop_back();
    if (!value.producer.exists()) {
      others.push_back(value.name);
      continue;
    }
    const Node& node = graph.nodes[value.producer];
    if (passes_on(node)) {
      open.insert(open.end(), node.in.begin(), node.in.end());
      continue;
    }
    const ValueId of = targets_of(node);
    if (!of.exists()) {
      others.push_back(node.custom ? node.custom->name : node.op);
    } else if (targets.exists() && of != targets) {
      refuse(graph, fmt::format("has means over the targets %{} and %{}", graph.values[of].name,
                                graph.values[targets].name));
    } else {
      targets = of;
    }
  }
  if (!targets.exists()) refuse(graph, fmt::format("is computed by {}", fmt::join(others, ", ")));
  graph.loss_weight = graph.add("count_targets", {targets}, {},
                                unique_name(graph, graph.outputs[0].name + ".targets"));
}

int64_t loss_unit(const Graph& graph) {
  const Node& count = graph.nodes[graph.values[graph.loss_weight].producer];
  const int64_t most = graph.type(count.in[0]).shape.numel(graph.bound);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(most, 1))));
}

ValueId weighted_loss(Graph& graph) {
  const ValueId loss = graph.outputs.at(0).value;
  if (!graph.loss_weight.exists()) return loss;
  const std::string name = graph.values[graph.loss_weight].name;
  const double part = 1 / static_cast<double>(loss_unit(graph));
  const ValueId share = graph.add("scale", {graph.loss_weight}, {{"factor", part}},
                                  unique_name(graph, name + ".share"));
  return graph.add("mul", {loss, share}, {},
                   unique_name(graph, graph.values[loss].name + ".weighted"));
}

}  // namespace ds
