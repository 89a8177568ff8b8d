#include "passes/rewrite.h"

#include "core/graph/readers.h"

namespace ds {
namespace {

using Readers = IdVector<ValueId, int>;

// Returns whether the pattern matches at the node, and appends its nodes to the match.
bool fits(const Node& node, const Pattern& pattern, const Readers& readers, RewriteMatch& match) {
  if (!pattern.is(op(node.op))) return false;
  match.nodes.push_back(&node);
  for (const auto& [operand, maker] : pattern.makers) {
    const ValueId value = node.in.at(operand);
    // An operand with other readers must be computed anyway, so a fusion would save nothing.
    const NodeId producer = match.graph.values[value].producer;
    if (!producer.exists() || readers[value] != 1) return false;
    if (!fits(match.graph.nodes[producer], maker, readers, match)) return false;
  }
  return true;
}

// Replaces a node. The new node keeps the results of the old node and their names, so readers and
// outputs do not change.
void replace(Graph& graph, NodeId at, Node node) {
  std::vector<TensorType> in;
  for (ValueId value : node.in) in.push_back(graph.type(value));
  const std::vector<TensorType> types = op(node.op).infer(in, node.attrs);
  const std::string name = graph.values[node.out[0]].name;
  for (size_t k = node.out.size(); k < types.size(); ++k)
    node.out.push_back(graph.append_value({unique_name(graph, name + ".room"), types[k], at}));
  graph.nodes[at] = std::move(node);
}

}  // namespace

int rewrite(Graph& graph, std::span<const RewriteRule> rules) {
  const Readers readers = count_readers(graph);
  // The number of nodes that read each value, without outputs.
  Readers inner = readers;
  for (const GraphOutput& out : graph.outputs) --inner[out.value];
  int replaced = 0;
  for (NodeId id : graph.nodes.ids()) {
    for (const RewriteRule& rule : rules) {
      RewriteMatch match{graph, {}};
      const bool found =
          fits(graph.nodes[id], rule.pattern, rule.keeps_outputs ? inner : readers, match);
      if (!found || !rule.condition(match)) continue;
      replace(graph, id, rule.replacement(match));
      ++replaced;
      break;
    }
  }
  return replaced;
}

}  // namespace ds
