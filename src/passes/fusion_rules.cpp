// Rules match operations by facts of the op table (OpDef::activation, gated, over_linear, linear),
// so the row of a new operation suffices for it to be fused.
#include "passes/fusion_rules.h"

#include <algorithm>
#include <cstddef>

#include "core/graph/graph.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

bool is_product(const OpDef& row) { return !row.gated.empty(); }
bool is_activation(const OpDef& row) { return static_cast<bool>(row.activation); }
bool is_loss(const OpDef& row) { return !row.over_linear.empty(); }
bool is_linear(const OpDef& row) { return row.linear; }

// Returns whether the result of the activation is a matrix, since glu accepts matrices only.
bool is_matrix(const RewriteMatch& m) { return m.graph.type(m.nodes[1]->out[0]).shape.rank() == 2; }

// Returns whether a weight is frozen. The kept form of the head always computes the gradient of its
// weight, which would be wasted.
bool is_frozen(const Graph& graph, ValueId weight) {
  return std::ranges::any_of(graph.params,
                             [&](const Parameter& p) { return p.value == weight && p.frozen; });
}

}  // namespace

// Either factor of the product may be the activation, so there is one rule for each side.
std::vector<RewriteRule> gate_rules() {
  std::vector<RewriteRule> rules;
  for (size_t side : {size_t{0}, size_t{1}}) {
    auto gated = [side](const RewriteMatch& m) {
      const Node &product = *m.nodes[0], &activation = *m.nodes[1];
      return Node{op(product.op).gated,
                  {activation.in[0], product.in[1 - side]},
                  product.out,
                  {{"act", op(activation.op).activation(activation.attrs)}}};
    };
    rules.push_back({"gate", {is_product, {{side, {is_activation}}}}, false, is_matrix, gated});
  }
  return rules;
}

std::vector<RewriteRule> head_rules(int64_t fewest_words, bool kept) {
  auto fits = [=](const RewriteMatch& m) {
    const Node& head = *m.nodes[1];
    const bool plain = head.in.size() == 2 && head.attrs.integer_or("transposed", 0) == 0;
    return plain && m.graph.type(head.in[1]).shape[0].extent >= fewest_words &&
           !(kept && is_frozen(m.graph, head.in[1]));
  };
  auto fused = [=](const RewriteMatch& m) {
    const Node &loss = *m.nodes[0], &head = *m.nodes[1];
    Node node{op(loss.op).over_linear, {head.in[0], head.in[1], loss.in[1]}, loss.out, loss.attrs};
    if (kept) node.attrs.set("kept", 1);
    return node;
  };
  return {{"head", {is_loss, {{0, {is_linear}}}}, true, fits, fused}};
}

}  // namespace ds
