#include "passes/cse.h"

#include <map>
#include <numeric>

namespace ds {
namespace {

std::string key(const Node& node) {
  std::string out = node.op + node.attrs.print();
  for (ValueId in : node.in) out += " " + std::to_string(in);
  return out;
}

void rename(std::vector<ValueId>& ids, const std::vector<ValueId>& names) {
  for (ValueId& id : ids) {
    if (id >= 0) id = names[static_cast<size_t>(id)];
  }
}

// names[v]: the value that stands for v. Returns which nodes are kept.
std::vector<char> merge(Graph& graph, std::vector<ValueId>& names) {
  std::map<std::string, size_t> seen;
  std::vector<char> keep(graph.nodes.size(), 1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    rename(graph.nodes[i].in, names);
    auto [it, fresh] = seen.emplace(key(graph.nodes[i]), i);
    if (fresh) continue;
    keep[i] = 0;
    const Node& first = graph.nodes[it->second];
    for (size_t k = 0; k < first.out.size(); ++k)
      names[static_cast<size_t>(graph.nodes[i].out[k])] = first.out[k];
  }
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

}  // namespace

void eliminate_common_subexpressions(Graph& graph) {
  std::vector<ValueId> names(graph.values.size());
  std::iota(names.begin(), names.end(), 0);
  std::vector<char> keep = merge(graph, names);
  rename(graph.outputs, names);
  for (Parameter& p : graph.params) {
    if (p.grad >= 0) p.grad = names[static_cast<size_t>(p.grad)];
  }
  drop_dead(graph, keep);
  std::vector<Node> kept;
  NodeId backward = -1;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (static_cast<NodeId>(i) == graph.backward_begin) backward = static_cast<NodeId>(kept.size());
    if (!keep[i]) continue;
    for (ValueId out : graph.nodes[i].out) {
      graph.values[static_cast<size_t>(out)].producer = static_cast<NodeId>(kept.size());
    }
    kept.push_back(std::move(graph.nodes[i]));
  }
  if (graph.backward_begin >= 0)
    graph.backward_begin = backward < 0 ? static_cast<NodeId>(kept.size()) : backward;
  graph.nodes = std::move(kept);
}

}  // namespace ds
