// Recomputes activations instead of keeping them.
//
// Problem: the backward part reads results of the forward part, so all of them live in between.
// Some cost less to recompute than to keep.
//
// Invariant: a copy of a forward node has the same operation and attributes and reads the same
// values, or copies of them with the same bits; kernels and random numbers (Philox streams in
// attributes) depend on nothing else. So results do not change, dropout included.
//
// Algorithm: a policy chooses the values of the forward part that are recomputed. The backward
// nodes are walked in order. Before the first node that reads such a value, copies of the nodes
// that compute it are inserted: its producer and, before that, the producers of operands that are
// also recomputed. Cheap operations read only kept values, so there only the producer is copied.
// For layers, the graph is divided into blocks. Each forward node belongs to the last layer whose
// parameters it or its operands have read, and values that cross from one block to another are
// kept. So a value is recomputed from kept values within its own block.
//
// Cost: linear in nodes and operands. "cheap" adds element-wise work at run time. "layers" adds the
// products of a forward pass without the head, and keeps one activation for each block instead of a
// few dozen.
//
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost"
// (arXiv:1604.06174).
#include "passes/recompute.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/name.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

// A rewrite of the backward part by which it reads copies of the values that are marked in `again`.
class Recomputer {
 public:
  Recomputer(Graph& graph, IdVector<ValueId, char> again)
      : graph_(graph),
        begin_(graph.backward_begin),
        again_(std::move(again)),
        copies_(graph.values.size()) {}

  void run() {
    nodes_.assign(graph_.nodes.begin(), graph_.nodes.begin() + begin_.number());
    for (NodeId i : IdRange(begin_, graph_.nodes.past())) {
      Node node = graph_.nodes[i];
      for (ValueId& in : node.in) in = made(in);
      nodes_.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes_);
    for (NodeId i : graph_.nodes.ids()) {
      for (ValueId out : graph_.nodes[i].out) graph_.values[out].producer = i;
    }
  }

 private:
  // Returns the value that the backward part reads in place of `value`. A chain of producers may be
  // as long as a block of layers, so it is walked without recursion.
  ValueId made(ValueId value) {
    if (!wanted(value)) return current(value);
    std::vector<ValueId> open{value};
    while (!open.empty()) {
      const ValueId next = open.back();
      if (!wanted(next)) {
        open.pop_back();
        continue;
      }
      const Node& maker = graph_.nodes[graph_.values[next].producer];
      const size_t before = open.size();
      for (ValueId in : maker.in) {
        if (wanted(in)) open.push_back(in);
      }
      if (open.size() > before) continue;
      copy(maker);
      open.pop_back();
    }
    return current(value);
  }

  bool wanted(ValueId value) const {
    return again_.has(value) && again_[value] && !copies_[value].exists();
  }
  ValueId current(ValueId value) const {
    return again_.has(value) && again_[value] ? copies_[value] : value;
  }

  void copy(const Node& maker) {
    Node node = maker;
    for (ValueId& in : node.in) in = current(in);
    for (ValueId& out : node.out) {
      Value twin = graph_.values[out];
      twin.name = unique_name(graph_, twin.name + ".again");
      const ValueId made = graph_.append_value(std::move(twin));
      copies_[out] = made;
      out = made;
    }
    nodes_.push_back(std::move(node));
  }

  Graph& graph_;
  NodeId begin_;
  // For each value of the original graph, whether it is recomputed.
  IdVector<ValueId, char> again_;
  // The copies of recomputed values. The id does not exist for a value that has not been copied
  // yet.
  IdVector<ValueId, ValueId> copies_;
  IdVector<NodeId, Node> nodes_;
};

// Returns the forward node that computes a value, or null.
const Node* maker_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.values[value].producer;
  return producer.exists() && producer < graph.backward_begin ? &graph.nodes[producer] : nullptr;
}

// Marks the first results of cheap operations whose operands are kept for the backward part anyway.
IdVector<ValueId, char> cheap_values(const Graph& graph) {
  auto may_repeat = [&](ValueId value) {
    const Node* node = maker_of(graph, value);
    return node && node->out[0] == value && op(node->op).cheap;
  };
  IdVector<ValueId, char> kept(graph.values.size(), 0), again(graph.values.size(), 0);
  for (ValueId v : graph.values.ids()) kept[v] = !graph.values[v].producer.exists();
  for (NodeId i : IdRange(graph.backward_begin, graph.nodes.past())) {
    for (ValueId in : graph.nodes[i].in) {
      if (!may_repeat(in)) kept[in] = 1;
    }
  }
  for (ValueId v : graph.values.ids()) {
    if (!may_repeat(v)) continue;
    const std::vector<ValueId>& in = maker_of(graph, v)->in;
    again[v] = std::ranges::all_of(in, [&](ValueId operand) { return kept[operand] != 0; });
  }
  return again;
}

// Layer numbers of the nodes before the first layer and after the last one.
constexpr int64_t kBefore = -1, kAfter = std::numeric_limits<int64_t>::max();

// Returns the layer of each forward node, which is the highest layer of its operands and of its own
// parameters. A node whose operands depend on a layer and that reads a parameter outside all
// layers, such as the head, is after the layers.
IdVector<NodeId, int64_t> layers_of(const Graph& graph) {
  std::map<std::string, int64_t> number;
  for (const Parameter& p : graph.params) {
    if (Scope scope = scope_of(p.name); scope.numbered)
      number.emplace(scope.name, static_cast<int64_t>(number.size()));
  }
  IdVector<ValueId, const Parameter*> param(graph.values.size(), nullptr);
  for (const Parameter& p : graph.params) param[p.value] = &p;
  IdVector<NodeId, int64_t> layer;
  for (NodeId i : IdRange(NodeId(0), graph.backward_begin)) {
    int64_t at = kBefore, own = kBefore;
    // True if the node reads a parameter that belongs to no layer.
    bool outside = false;
    for (ValueId in : graph.nodes[i].in) {
      if (param[in]) {
        const Scope scope = scope_of(param[in]->name);
        outside = outside || !scope.numbered;
        if (scope.numbered) own = std::max(own, number.at(scope.name));
      } else if (graph.values[in].producer.exists()) {
        at = std::max(at, layer[graph.values[in].producer]);
      }
    }
    if (at != kBefore && outside) at = kAfter;
    layer.push_back(std::max(at, own));
  }
  return layer;
}

}  // namespace

void recompute_cheap(Graph& graph) {
  if (graph.backward_begin.exists()) Recomputer(graph, cheap_values(graph)).run();
}

void recompute_layers(Graph& graph, int64_t layers) {
  ensure(layers >= 1, "blocks must have at least 1 layer, got {}", layers);
  if (!graph.backward_begin.exists()) return;
  const IdVector<NodeId, int64_t> layer = layers_of(graph);
  auto block = [&](NodeId node) {
    const int64_t at = layer[node];
    return at == kBefore || at == kAfter ? at : at / layers;
  };
  IdVector<ValueId, char> again(graph.values.size(), 0);
  for (NodeId i : IdRange(NodeId(0), graph.backward_begin)) {
    const Node& node = graph.nodes[i];
    if (block(i) == kBefore || block(i) == kAfter || node.custom) continue;
    for (ValueId out : node.out) again[out] = 1;
  }
  // Values that another block reads are kept, and so are outputs.
  for (NodeId i : IdRange(NodeId(0), graph.backward_begin)) {
    for (ValueId in : graph.nodes[i].in) {
      const NodeId producer = graph.values[in].producer;
      if (producer.exists() && block(producer) != block(i)) again[in] = 0;
    }
  }
  for (const GraphOutput& output : graph.outputs) again[output.value] = 0;
  Recomputer(graph, std::move(again)).run();
}

}  // namespace ds
