#include "passes/recompute.h"

#include <algorithm>

#include "core/graph/ops.h"

namespace ds {
namespace {

class Recomputer {
 public:
  explicit Recomputer(Graph& graph)
      : graph_(graph),
        begin_(static_cast<size_t>(graph.backward_begin)),
        kept_(graph.values.size(), 0),
        again_(graph.values.size(), -1) {}

  void run() {
    find_kept();
    std::vector<Node> nodes(graph_.nodes.begin(), graph_.nodes.begin() + graph_.backward_begin);
    for (size_t i = begin_; i < graph_.nodes.size(); ++i) {
      Node node = graph_.nodes[i];
      for (ValueId& in : node.in) {
        if (!cheap(in)) continue;
        if (again_[static_cast<size_t>(in)] < 0) nodes.push_back(copy(in));
        in = again_[static_cast<size_t>(in)];
      }
      nodes.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (ValueId out : graph_.nodes[i].out)
        graph_.values[static_cast<size_t>(out)].producer = static_cast<NodeId>(i);
    }
  }

 private:
  // The forward node that made a value as its first output, or null.
  const Node* maker(ValueId value) const {
    NodeId producer = graph_.values[static_cast<size_t>(value)].producer;
    if (producer < 0 || static_cast<size_t>(producer) >= begin_) return nullptr;
    const Node& node = graph_.nodes[static_cast<size_t>(producer)];
    return node.out[0] == value ? &node : nullptr;
  }

  bool may_repeat(ValueId value) const {
    const Node* node = maker(value);
    return node && op(node->op).cheap;
  }

  // kept_: values that are there in the backward part whatever is made again.
  void find_kept() {
    for (size_t v = 0; v < graph_.values.size(); ++v) kept_[v] = graph_.values[v].producer < 0;
    for (size_t i = begin_; i < graph_.nodes.size(); ++i) {
      for (ValueId in : graph_.nodes[i].in) {
        if (!may_repeat(in)) kept_[static_cast<size_t>(in)] = 1;
      }
    }
  }

  bool cheap(ValueId value) const {
    if (static_cast<size_t>(value) >= kept_.size() || !may_repeat(value)) return false;
    const std::vector<ValueId>& in = maker(value)->in;
    return std::all_of(in.begin(), in.end(), [&](ValueId v) { return kept_[static_cast<size_t>(v)] != 0; });
  }

  Node copy(ValueId value) {
    Node node = *maker(value);
    for (ValueId& out : node.out) {
      Value twin = graph_.values[static_cast<size_t>(out)];
      twin.name = unique_name(graph_, twin.name + ".again");
      out = graph_.append_value(std::move(twin));
    }
    again_[static_cast<size_t>(value)] = node.out[0];
    return node;
  }

  Graph& graph_;
  size_t begin_;
  std::vector<char> kept_;
  std::vector<ValueId> again_;  // per value of the graph as given: its copy
};

}  // namespace

void recompute_cheap(Graph& graph) {
  if (graph.backward_begin >= 0) Recomputer(graph).run();
}

}  // namespace ds
