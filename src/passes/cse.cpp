#include "passes/cse.h"

#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace ds {
namespace {

std::string key(const Node& node) {
  std::string out = node.op + node.attrs.print();
  for (ValueId in : node.in) out += " " + std::to_string(in);
  return out;
}

void rename(std::vector<ValueId>& ids, const std::vector<ValueId>& names) {
  for (ValueId& id : ids) id = names[static_cast<size_t>(id)];
}

void rename_results(Graph& graph, const std::vector<ValueId>& names) {
  rename(graph.outputs, names);
  for (Parameter& p : graph.params) {
    if (p.grad >= 0) p.grad = names[static_cast<size_t>(p.grad)];
  }
}

// Makes every use refer to the first of equal nodes. Returns which nodes are kept.
std::vector<char> merge(Graph& graph) {
  std::vector<ValueId> names(graph.values.size());
  std::iota(names.begin(), names.end(), 0);
  std::map<std::string, size_t> seen;
  std::vector<char> keep(graph.nodes.size(), 1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    rename(graph.nodes[i].in, names);
    auto [it, fresh] = seen.emplace(key(graph.nodes[i]), i);
    if (fresh) continue;
    keep[i] = 0;
    const Node& first = graph.nodes[it->second];
    for (size_t k = 0; k < first.out.size(); ++k) {
      names[static_cast<size_t>(graph.nodes[i].out[k])] = first.out[k];
    }
  }
  rename_results(graph, names);
  return keep;
}

void drop_dead(const Graph& graph, std::vector<char>& keep) {
  std::vector<char> used(graph.values.size(), 0);
  for (ValueId out : graph.outputs) used[static_cast<size_t>(out)] = 1;
  for (const Parameter& p : graph.params) {
    if (p.grad >= 0) used[static_cast<size_t>(p.grad)] = 1;
  }
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    bool wanted = false;
    for (ValueId out : graph.nodes[i].out) wanted = wanted || used[static_cast<size_t>(out)];
    if (!wanted) keep[i] = 0;
    if (!keep[i]) continue;
    for (ValueId in : graph.nodes[i].in) used[static_cast<size_t>(in)] = 1;
  }
}

// Removes the other nodes and the values they made; later ids move down.
void compact(Graph& graph, const std::vector<char>& keep) {
  std::vector<NodeId> places(graph.nodes.size() + 1, 0);
  for (size_t i = 0; i < keep.size(); ++i) places[i + 1] = places[i] + keep[i];
  std::vector<ValueId> names(graph.values.size(), -1);
  std::vector<Value> values;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    NodeId producer = graph.values[v].producer;
    if (producer >= 0 && !keep[static_cast<size_t>(producer)]) continue;
    names[v] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[v]));
    if (producer >= 0) values.back().producer = places[static_cast<size_t>(producer)];
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep[i]) continue;
    nodes.push_back(std::move(graph.nodes[i]));
    rename(nodes.back().in, names);
    rename(nodes.back().out, names);
  }
  rename(graph.inputs, names);
  for (Parameter& p : graph.params) p.value = names[static_cast<size_t>(p.value)];
  rename_results(graph, names);
  if (graph.backward_begin >= 0) graph.backward_begin = places[static_cast<size_t>(graph.backward_begin)];
  graph.replace_values(std::move(values));
  graph.nodes = std::move(nodes);
}

}  // namespace

void eliminate_common_subexpressions(Graph& graph) {
  std::vector<char> keep = merge(graph);
  drop_dead(graph, keep);
  compact(graph, keep);
}

}  // namespace ds
