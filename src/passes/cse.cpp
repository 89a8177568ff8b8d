// Eliminates common subexpressions and dead nodes. merge() redirects every use to the first of
// equal nodes, drop_dead() marks nodes that nothing needs, and compact() removes both kinds of
// nodes. Nodes are compared by a text key, so the cost is that of sorting the keys.
#include "passes/cse.h"

#include <fmt/core.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ds {
namespace {

// Returns a text that is equal only for nodes that compute the same results. Custom operations are
// equal only if they share their CustomOp.
std::string key(const Node& node) {
  std::string out = node.op + node.attrs.print();
  if (node.custom) out += fmt::format(" {}", static_cast<const void*>(node.custom.get()));
  for (ValueId in : node.in) out += fmt::format(" {}", in);
  return out;
}

using Names = IdVector<ValueId, ValueId>;
using Kept = IdVector<NodeId, char>;

void rename(std::vector<ValueId>& ids, const Names& names) {
  for (ValueId& id : ids) id = names[id];
}

void rename_results(Graph& graph, const Names& names) {
  for (GraphOutput& out : graph.outputs) out.value = names[out.value];
  if (graph.loss_weight.exists()) graph.loss_weight = names[graph.loss_weight];
  for (Parameter& p : graph.params) {
    if (p.grad.exists()) p.grad = names[p.grad];
  }
}

// Redirects every use to the first of equal nodes. Returns for each node whether it is kept.
Kept merge(Graph& graph) {
  Names names(graph.values.size());
  for (ValueId v : names.ids()) names[v] = v;
  std::map<std::string, NodeId> seen;
  Kept keep(graph.nodes.size(), 1);
  for (NodeId i : graph.nodes.ids()) {
    rename(graph.nodes[i].in, names);
    auto [it, fresh] = seen.emplace(key(graph.nodes[i]), i);
    if (fresh) continue;
    keep[i] = 0;
    const Node& first = graph.nodes[it->second];
    for (size_t k = 0; k < first.out.size(); ++k) {
      names[graph.nodes[i].out[k]] = first.out[k];
    }
  }
  rename_results(graph, names);
  return keep;
}

// Marks nodes as not kept if nothing depends on their results. The walk is backwards, so all
// readers of a node come before it.
void drop_dead(const Graph& graph, Kept& keep) {
  IdVector<ValueId, char> used(graph.values.size(), 0);
  for (const GraphOutput& out : graph.outputs) used[out.value] = 1;
  if (graph.loss_weight.exists()) used[graph.loss_weight] = 1;
  for (const Parameter& p : graph.params) {
    if (p.grad.exists()) used[p.grad] = 1;
  }
  for (NodeId i = graph.nodes.last(); i.exists(); --i) {
    bool wanted = false;
    for (ValueId out : graph.nodes[i].out) wanted = wanted || used[out];
    if (!wanted) keep[i] = 0;
    if (!keep[i]) continue;
    for (ValueId in : graph.nodes[i].in) used[in] = 1;
  }
}

// Removes the nodes that are not kept, and their results. The ids of later nodes and values
// decrease.
void compact(Graph& graph, const Kept& keep) {
  IdVector<NodeId, NodeId> places(graph.nodes.size() + 1, NodeId(0));
  for (NodeId i : keep.ids()) places[i + 1] = places[i] + keep[i];
  Names names(graph.values.size());
  IdVector<ValueId, Value> values;
  for (ValueId v : graph.values.ids()) {
    NodeId producer = graph.values[v].producer;
    if (producer.exists() && !keep[producer]) continue;
    names[v] = values.add(std::move(graph.values[v]));
    if (producer.exists()) values.back().producer = places[producer];
  }
  IdVector<NodeId, Node> nodes;
  for (NodeId i : graph.nodes.ids()) {
    if (!keep[i]) continue;
    nodes.push_back(std::move(graph.nodes[i]));
    rename(nodes.back().in, names);
    rename(nodes.back().out, names);
  }
  rename(graph.inputs, names);
  for (Parameter& p : graph.params) p.value = names[p.value];
  rename_results(graph, names);
  if (graph.backward_begin.exists()) graph.backward_begin = places[graph.backward_begin];
  graph.replace_values(std::move(values));
  graph.nodes = std::move(nodes);
}

}  // namespace

void eliminate_common_subexpressions(Graph& graph) {
  Kept keep = merge(graph);
  drop_dead(graph, keep);
  compact(graph, keep);
}

}  // namespace ds
