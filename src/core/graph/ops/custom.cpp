// Operations of the application that uses the library. Nodes `custom` carry a CustomOp, and their
// gradients are nodes `custom_dx` that carry the same object. The attributes hold everything that
// shapes depend on, so that passes treat both like any other operation and a text shows them. Only
// the application that supplies the callbacks can add such nodes.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/custom_op.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// Returns the compute type of a custom operation: the type of its first floating operand, or NONE.
DType first_floating(In in) {
  for (const TensorType& type : in) {
    if (is_floating(type.dtype)) return type.dtype;
  }
  return DS_DTYPE_NONE;
}

// Parses the types of results from `text`, which has the form of CustomOp::outputs.
Types types_of(std::string_view name, std::string_view text, In in) {
  Types out;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    size_t bracket = std::min(word.find('['), word.size());
    std::string_view dtype = word.substr(0, bracket);
    bool like_operand = dtype == "T";
    require(
        !like_operand || first_floating(in) != DS_DTYPE_NONE,
        "custom operation '{}': output {} is of the compute type, which needs a floating operand",
        name, out.size());
    out.push_back({like_operand ? first_floating(in) : parse_dtype(dtype),
                   Shape::parse(word.substr(bracket))});
  }
  return out;
}

Types infer_custom(In in, const Attrs& attrs) {
  return types_of(attrs.text("name"), attrs.text("outputs"), in);
}

// Returns the types of the wanted gradients. Operands are those of the node, its results, and then
// the gradients of the results that `given` marks.
Types infer_custom_dx(In in, const Attrs& attrs) {
  const std::string& wanted = attrs.text("wanted");
  require(wanted.size() <= in.size(),
          "custom_dx: attribute 'wanted' must have at most {} marks, got '{}'", in.size(), wanted);
  Types out;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == '1') out.push_back(in[i]);
  }
  return out;
}

// Ids and other integer operands have no gradient, even if it is wanted.
std::vector<ValueId> custom_backward(BackwardContext& c) {
  const CustomOp& custom = *c.node.custom;
  const Node& node = c.node;
  require(custom.has_backward,
          "custom operation '{}' of value %{} has no backward, and a gradient needs it",
          custom.name, c.graph.values[node.out[0]].name);
  std::vector<ValueId> in = node.in;
  in.insert(in.end(), node.out.begin(), node.out.end());
  std::string wanted(node.in.size(), '0'), given(node.out.size(), '0');
  for (size_t k = 0; k < node.out.size(); ++k) {
    if (!c.output_grads[k].exists()) continue;
    given[k] = '1';
    in.push_back(c.output_grads[k]);
  }
  std::vector<size_t> inputs;
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!c.wanted[i] || !is_floating(c.graph.type(node.in[i]).dtype)) continue;
    wanted[i] = '1';
    inputs.push_back(i);
  }
  std::vector<ValueId> grads(node.in.size());
  ValueId next = c.emit("custom_dx", in,
                        {{"name", custom.name}, {"wanted", wanted}, {"given", given}}, inputs);
  if (!next.exists()) return grads;
  c.graph.nodes.back().custom = node.custom;
  for (size_t i : inputs) grads[i] = next++;
  return grads;
}

// The cost of a callback is unknown.
double unknown_flops(In, const Attrs&, int64_t) { return 0; }

}  // namespace

void add_custom_ops(std::deque<OpDef>& table) {
  const AttrDef name{"name", AttrKind::text, "the name of the operation"};
  const OperandDef operand{"x", "[any]", "any tensor", 0, kMostCustomOperands},
      result{"y", "[any]", "a result", 1, kMostCustomOperands};
  OpDef forward{.name = "custom",
                .doc = "An operation of the program, by callback.",
                .forms = {{"", {operand}, {result}}},
                .attrs = {name, {"outputs", AttrKind::text, "types of results"}},
                .infer = infer_custom,
                .backward = custom_backward,
                .flops = unknown_flops};
  OpDef backward{
      .name = "custom_dx",
      .doc = "The gradients of a custom operation, by callback.",
      .forms = {{"",
                 {{"x", "[any]", "operands, results and gradients", 0, 3 * kMostCustomOperands}},
                 {result}}},
      .attrs = {name,
                {"wanted", AttrKind::text,
                 "1 for each operand whose gradient is a result, 0 for others"},
                {"given", AttrKind::text,
                 "1 for each result whose gradient is an operand, 0 for others"}},
      .infer = infer_custom_dx,
      .flops = unknown_flops};
  for (OpDef* row : {&forward, &backward}) {
    row->by_callback = true;
    table.push_back(std::move(*row));
  }
}

}  // namespace ds
