#include "passes/recompute.h"

#include <algorithm>
#include <vector>

#include "core/graph/ops.h"

namespace ds {
namespace {

class Recomputer {
 public:
  explicit Recomputer(Graph& graph)
      : graph_(graph),
        begin_(graph.backward_begin),
        kept_(graph.values.size(), 0),
        again_(graph.values.size()) {}

  void run() {
    find_kept();
    IdVector<NodeId, Node> nodes(graph_.nodes.begin(), graph_.nodes.begin() + begin_.number());
    for (NodeId i : IdRange(begin_, graph_.nodes.past())) {
      Node node = graph_.nodes[i];
      for (ValueId& in : node.in) {
        if (!cheap(in)) continue;
        if (!again_[in].exists()) nodes.push_back(copy(in));
        in = again_[in];
      }
      nodes.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes);
    for (NodeId i : graph_.nodes.ids()) {
      for (ValueId out : graph_.nodes[i].out) graph_.values[out].producer = i;
    }
  }

 private:
  // The forward node that made a value as its first output, or null.
  const Node* maker(ValueId value) const {
    NodeId producer = graph_.values[value].producer;
    if (!producer.exists() || producer >= begin_) return nullptr;
    const Node& node = graph_.nodes[producer];
    return node.out[0] == value ? &node : nullptr;
  }

  bool may_repeat(ValueId value) const {
    const Node* node = maker(value);
    return node && op(node->op).cheap;
  }

  // kept_: values that are there in the backward part whatever is made again.
  void find_kept() {
    for (ValueId v : graph_.values.ids()) kept_[v] = !graph_.values[v].producer.exists();
    for (NodeId i : IdRange(begin_, graph_.nodes.past())) {
      for (ValueId in : graph_.nodes[i].in) {
        if (!may_repeat(in)) kept_[in] = 1;
      }
    }
  }

  bool cheap(ValueId value) const {
    if (!kept_.has(value) || !may_repeat(value)) return false;
    const std::vector<ValueId>& in = maker(value)->in;
    return std::all_of(in.begin(), in.end(), [&](ValueId v) { return kept_[v] != 0; });
  }

  Node copy(ValueId value) {
    Node node = *maker(value);
    for (ValueId& out : node.out) {
      Value twin = graph_.values[out];
      twin.name = unique_name(graph_, twin.name + ".again");
      out = graph_.append_value(std::move(twin));
    }
    again_[value] = node.out[0];
    return node;
  }

  Graph& graph_;
  NodeId begin_;
  IdVector<ValueId, char> kept_;
  IdVector<ValueId, ValueId> again_;  // of a value of the graph as given: its copy
};

}  // namespace

void recompute_cheap(Graph& graph) {
  if (graph.backward_begin.exists()) Recomputer(graph).run();
}

}  // namespace ds
