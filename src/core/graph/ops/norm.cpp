#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

Types infer_layer_norm(In in, const Attrs& attrs) {
  OperandCheck check("layer_norm", {"x", "w", "b"}, in);
  check.matrix(0);
  TensorType row{in[0].dtype, {in[0].shape[1]}};
  check.equal(1, row);
  check.equal(2, row);
  require(attrs.real("eps") > 0, "layer_norm: attribute 'eps' must be > 0, got {}", attrs.real("eps"));
  TensorType stats{wide_type(in[0].dtype), {in[0].shape[0]}};
  return {in[0], stats, stats};
}

Types infer_layer_norm_dx(In in, const Attrs&) {
  OperandCheck check("layer_norm_dx", {"dy", "x", "w", "mean", "rstd"}, in);
  check.matrix(0);
  TensorType stats{wide_type(in[0].dtype), {in[0].shape[0]}};
  check.equal(1, in[0]);
  check.equal(2, {in[0].dtype, {in[0].shape[1]}});
  check.equal(3, stats);
  check.equal(4, stats);
  return {in[0]};
}

Types infer_layer_norm_dw(In in, const Attrs&) {
  OperandCheck check("layer_norm_dw", {"dy", "x", "mean", "rstd"}, in);
  check.matrix(0);
  TensorType stats{wide_type(in[0].dtype), {in[0].shape[0]}};
  check.equal(1, in[0]);
  check.equal(2, stats);
  check.equal(3, stats);
  TensorType row{in[0].dtype, {in[0].shape[1]}};
  return {row, row};
}

std::vector<ValueId> layer_norm_backward(BackwardContext& c) {
  ValueId dy = c.first_grad(), x = c.node.in[0], mean = c.node.out[1], rstd = c.node.out[2];
  ValueId dx = c.emit("layer_norm_dx", {dy, x, c.node.in[1], mean, rstd}, {}, {0});
  ValueId dw = c.emit("layer_norm_dw", {dy, x, mean, rstd}, {}, {1, 2});
  return {dx, dw, dw < 0 ? -1 : dw + 1};
}

// Mean, variance, normalization and affine map: about 8 operations an element; backward about as many.
double norm_flops(In in, const Attrs&, int64_t n) { return 8.0 * static_cast<double>(in[0].shape.numel(n)); }

}  // namespace

void add_norm_ops(std::vector<OpDef>& table) {
  table.push_back({"layer_norm", 3, 3, {"eps"}, infer_layer_norm, layer_norm_backward, norm_flops});
  table.push_back({"layer_norm_dx", 5, 5, {}, infer_layer_norm_dx, {}, norm_flops});
  table.push_back({"layer_norm_dw", 4, 4, {}, infer_layer_norm_dw, {}, norm_flops});
}

}  // namespace ds
