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

double one_per_element(In in, const Attrs&, int64_t n) { return static_cast<double>(in[0].shape.numel(n)); }
double no_flops(In, const Attrs&, int64_t) { return 0; }

}  // namespace

void add_elementwise_ops(std::vector<OpDef>& table) {
  table.push_back({"add", 2, 2, {}, infer_add, add_backward, one_per_element});
  table.push_back({"dropout", 1, 1, {"p", "op"}, infer_dropout, dropout_backward, one_per_element});
  table.push_back({"fill", 0, 0, {"value", "dtype"}, infer_fill, {}, no_flops});
  table.push_back({"cast", 1, 1, {"dtype"}, infer_cast, cast_backward, no_flops});
}

}  // namespace ds
