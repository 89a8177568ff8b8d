#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

Types infer_cross_entropy(In in, const Attrs&) {
  OperandCheck check("cross_entropy", {"logits", "targets"}, in);
  check.matrix(0);
  check.equal(1, {DS_DTYPE_I32, {in[0].shape[0]}});
  DType wide = wide_type(in[0].dtype);
  return {{wide, {}}, {wide, {in[0].shape[0]}}};
}

Types infer_cross_entropy_dx(In in, const Attrs&) {
  OperandCheck check("cross_entropy_dx", {"dloss", "logits", "targets", "lse"}, in);
  check.matrix(1);
  DType wide = wide_type(in[1].dtype);
  check.equal(0, {wide, {}});
  check.equal(2, {DS_DTYPE_I32, {in[1].shape[0]}});
  check.equal(3, {wide, {in[1].shape[0]}});
  return {in[1]};
}

std::vector<ValueId> cross_entropy_backward(BackwardContext& c) {
  const Node& node = c.node;
  return {c.emit("cross_entropy_dx", {c.first_grad(), node.in[0], node.in[1], node.out[1]}, {}, {0}), -1};
}

Types infer_mse(In in, const Attrs&) {
  OperandCheck check("mse", {"x", "target"}, in);
  check.floating(0);
  check.equal(1, in[0]);
  return {{wide_type(in[0].dtype), {}}};
}

Types infer_mse_dx(In in, const Attrs&) {
  OperandCheck check("mse_dx", {"dloss", "x", "target"}, in);
  check.floating(1);
  check.equal(0, {wide_type(in[1].dtype), {}});
  check.equal(2, in[1]);
  return {in[1]};
}

// By symmetry the gradient by the target is mse_dx with x and target exchanged.
std::vector<ValueId> mse_backward(BackwardContext& c) {
  ValueId dloss = c.first_grad(), x = c.node.in[0], target = c.node.in[1];
  ValueId dx = c.emit("mse_dx", {dloss, x, target}, {}, {0});
  return {dx, c.emit("mse_dx", {dloss, target, x}, {}, {1})};
}

// An exponential counts as 4.
double cross_entropy_flops(In in, const Attrs&, int64_t n) {
  return 6.0 * static_cast<double>(in[0].shape.numel(n));
}
double cross_entropy_dx_flops(In in, const Attrs&, int64_t n) {
  return 6.0 * static_cast<double>(in[1].shape.numel(n));
}
double mse_flops(In in, const Attrs&, int64_t n) { return 3.0 * static_cast<double>(in[0].shape.numel(n)); }
double mse_dx_flops(In in, const Attrs&, int64_t n) {
  return 2.0 * static_cast<double>(in[1].shape.numel(n));
}

}  // namespace

void add_loss_ops(std::vector<OpDef>& table) {
  table.push_back(
      {"cross_entropy", 2, 2, {}, infer_cross_entropy, cross_entropy_backward, cross_entropy_flops});
  table.push_back({"cross_entropy_dx", 4, 4, {}, infer_cross_entropy_dx, {}, cross_entropy_dx_flops});
  table.push_back({"mse", 2, 2, {}, infer_mse, mse_backward, mse_flops});
  table.push_back({"mse_dx", 3, 3, {}, infer_mse_dx, {}, mse_dx_flops});
}

}  // namespace ds
