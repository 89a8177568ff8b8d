#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

Types infer_add(In in, const Attrs&) {
  OperandCheck check("add", {"a", "b"}, in);
  check.floating(0);
  check.equal(1, in[0]);
  return {in[0]};
}

std::vector<ValueId> add_backward(BackwardContext& c) { return {c.first_grad(), c.first_grad()}; }

Types infer_dropout(In in, const Attrs& attrs) {
  OperandCheck check("dropout", {"x"}, in);
  check.floating(0);
  double p = attrs.real("p");
  require(p >= 0 && p < 1, "dropout: attribute 'p' must be in [0, 1), got {}", p);
  int64_t stream = attrs.integer("op");
  require(stream >= 0 && stream < 65536, "dropout: attribute 'op' must be in [0, 65536), got {}", stream);
  return {in[0]};
}

std::vector<ValueId> dropout_backward(BackwardContext& c) {
  return {c.emit("dropout", {c.first_grad()}, c.node.attrs, {0})};
}

DType floating_attribute(std::string_view op, const Attrs& attrs) {
  DType dtype = parse_dtype(attrs.text("dtype"));
  require(is_floating(dtype), "{}: attribute 'dtype' must be floating point, got {}", op, dtype_name(dtype));
  return dtype;
}

Types infer_fill(In, const Attrs& attrs) {
  attrs.real("value");
  return {{floating_attribute("fill", attrs), {}}};
}

Types infer_cast(In in, const Attrs& attrs) {
  OperandCheck("cast", {"x"}, in).floating(0);
  return {{floating_attribute("cast", attrs), in[0].shape}};
}

std::vector<ValueId> cast_backward(BackwardContext& c) {
  Attrs back{{"dtype", dtype_name(c.graph.type(c.node.in[0]).dtype)}};
  return {c.emit("cast", {c.first_grad()}, back, {0})};
}

// Nothing is dropped from a text.
ValueId decode_dropout(DecodeContext& c) { return c.in[0]; }

double one_per_element(In in, const Attrs&, int64_t n) { return static_cast<double>(in[0].shape.numel(n)); }
double no_flops(In, const Attrs&, int64_t) { return 0; }

}  // namespace

void add_elementwise_ops(std::vector<OpDef>& table) {
  table.push_back({.name = "add",
                   .min_inputs = 2,
                   .max_inputs = 2,
                   .infer = infer_add,
                   .backward = add_backward,
                   .flops = one_per_element,
                   .rows = Rows::same});
  table.push_back({.name = "dropout",
                   .min_inputs = 1,
                   .max_inputs = 1,
                   .attrs = {"p", "op"},
                   .infer = infer_dropout,
                   .backward = dropout_backward,
                   .flops = one_per_element,
                   .cheap = true,
                   .decode = decode_dropout});
  table.push_back({.name = "fill",
                   .min_inputs = 0,
                   .max_inputs = 0,
                   .attrs = {"value", "dtype"},
                   .infer = infer_fill,
                   .flops = no_flops});
  table.push_back({.name = "cast",
                   .min_inputs = 1,
                   .max_inputs = 1,
                   .attrs = {"dtype"},
                   .infer = infer_cast,
                   .backward = cast_backward,
                   .flops = no_flops,
                   .rows = Rows::same_of_one,
                   .cheap = true,
                   .follows_state = true});
}

}  // namespace ds
