// Making activations again.
//
// Problem. The backward part reads what the forward part has made, so all of that lives in between.
// Some of it costs less to make again than to keep.
//
// Invariant. A copy of a forward node has the same operation and attributes and reads the same
// values, or copies of them that have the same bits: kernels and random numbers (Philox streams in
// attributes) depend on nothing else. So results do not change, dropout included.
//
// Algorithm. A policy says which values of the forward part are made again. The backward nodes are
// walked in order; before the first one that reads such a value, copies of the nodes that it needs
// are put: its maker, and before it the makers of those of its operands that are made again, too.
// Cheap operations read only what is kept, so their chains have one link. Layers are blocks of the
// graph: the forward nodes are numbered by the layer whose parameters they or their operands have
// read last, and what crosses from one block to another is kept. A value is then made again from
// the last kept ones before it, in its own block only.
//
// Cost. Linear in nodes and operands. "cheap" adds elementwise work; "layers" adds the products of
// a forward pass without the head, and keeps one activation a block instead of a few tens.
//
// Source. Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost" (arXiv
// 1604.06174).
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

// Rewrites the backward part so that it reads copies of the values for which again[v] is set.
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
  // What the backward part reads in place of a value. A chain of makers may be as long as the block
  // of layers, so it is walked without recursion.
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
  IdVector<ValueId, char> again_;      // of values of the graph as given
  IdVector<ValueId, ValueId> copies_;  // their copies, once there are any
  IdVector<NodeId, Node> nodes_;
};

// The forward node that made a value, or null.
const Node* maker_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.values[value].producer;
  return producer.exists() && producer < graph.backward_begin ? &graph.nodes[producer] : nullptr;
}

// First results of cheap operations whose operands are there in the backward part whatever is made
// again.
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
    again[v] =
        std::all_of(in.begin(), in.end(), [&](ValueId operand) { return kept[operand] != 0; });
  }
  return again;
}

constexpr int64_t kBefore = -1, kAfter = std::numeric_limits<int64_t>::max();

// The layer of each forward node: kBefore and kAfter stand for what lies around the layers.
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
    bool outside = false;  // it reads a parameter that belongs to no layer
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
  ensure(layers >= 1, "blocks of {} layers", layers);
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
