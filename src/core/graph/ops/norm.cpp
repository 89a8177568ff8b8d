// Normalization of rows. Both norms return statistics as results, in f32 or f64, so that the
// backward part does not compute them again: layer_norm the mean and 1 / sqrt(variance + eps),
// rms_norm 1 / sqrt(mean square + eps). rms_norm normalizes runs of D columns, where D is the width
// of its weight: whole rows, or each head.
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

// Operands are x, w and b, or x alone, which means weight 1 and bias 0.
Types infer_layer_norm(In in, const Attrs& attrs) {
  bool affine = in.size() == 3;
  require(affine || in.size() == 1, "layer_norm: takes 1 or 3 operands, got {}", in.size());
  OperandCheck check("layer_norm", in);
  check.matrix(0);
  TensorType row{in[0].dtype, {in[0].shape[1]}};
  for (size_t i : {size_t{1}, size_t{2}}) {
    if (affine) check.equal(i, row);
  }
  require(attrs.real("eps") > 0, "layer_norm: attribute 'eps' must be > 0, got {}",
          attrs.real("eps"));
  TensorType stats{wide_type(in[0].dtype), {in[0].shape[0]}};
  return {in[0], stats, stats};
}

Types infer_layer_norm_dx(In in, const Attrs&) {
  bool affine = in.size() != 4;
  OperandCheck check("layer_norm_dx", in);
  check.matrix(0);
  TensorType stats{wide_type(in[0].dtype), {in[0].shape[0]}};
  check.equal(1, in[0]);
  if (affine) check.equal(2, {in[0].dtype, {in[0].shape[1]}});
  check.equal(in.size() - 2, stats);
  check.equal(in.size() - 1, stats);
  return {in[0]};
}

Types infer_layer_norm_dw(In in, const Attrs&) {
  OperandCheck check("layer_norm_dw", in);
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
  // One operation computes dw and db, since both sum over the same rows.
  if (c.node.in.size() == 1) return {c.emit("layer_norm_dx", {dy, x, mean, rstd}, {}, {0})};
  ValueId dx = c.emit("layer_norm_dx", {dy, x, c.node.in[1], mean, rstd}, {}, {0});
  ValueId dw = c.emit("layer_norm_dw", {dy, x, mean, rstd}, {}, {1, 2});
  return {dx, dw, !dw.exists() ? none : dw + 1};
}

// Returns the type of the statistics of runs of `width` columns, each normalized by itself. `width`
// must divide the columns of x.
TensorType run_statistics(std::string_view op, const TensorType& x, int64_t width) {
  int64_t columns = x.shape[1].extent;
  require(width >= 1 && columns % width == 0,
          "{}: operand 'x' must have a multiple of {} columns, the width of 'w', got {}", op, width,
          x.text());
  return {wide_type(x.dtype), {x.shape[0], columns / width}};
}

// Returns the types of y and the statistics. The width of the weight determines how many columns
// are normalized together.
Types infer_rms_norm(In in, const Attrs& attrs) {
  OperandCheck check("rms_norm", in);
  check.matrix(0);
  check.constant(1);
  require(in[1].shape.rank() == 1, "rms_norm: operand 'w' must have one dimension, got {}",
          in[1].text());
  check.equal(1, {in[0].dtype, in[1].shape});
  require(attrs.real("eps") > 0, "rms_norm: attribute 'eps' must be > 0, got {}",
          attrs.real("eps"));
  return {in[0], run_statistics("rms_norm", in[0], in[1].shape[0].extent)};
}

Types infer_rms_norm_dx(In in, const Attrs&) {
  OperandCheck check("rms_norm_dx", in);
  check.matrix(0);
  check.equal(1, in[0]);
  check.constant(2);
  require(in[2].shape.rank() == 1, "rms_norm_dx: operand 'w' must have one dimension, got {}",
          in[2].text());
  check.equal(2, {in[0].dtype, in[2].shape});
  check.equal(3, run_statistics("rms_norm_dx", in[0], in[2].shape[0].extent));
  return {in[0]};
}

Types infer_rms_norm_dw(In in, const Attrs& attrs) {
  OperandCheck check("rms_norm_dw", in);
  check.matrix(0);
  check.equal(1, in[0]);
  int64_t width = check.positive(attrs, "width");
  check.equal(2, run_statistics("rms_norm_dw", in[0], width));
  return {{in[0].dtype, {width}}};
}

// Appends the gradients of x and w. The gradient of w does not depend on the offset, since w + 1
// and w have the same derivative.
std::vector<ValueId> rms_norm_backward(BackwardContext& c) {
  ValueId dy = c.first_grad(), x = c.node.in[0], w = c.node.in[1], rstd = c.node.out[1];
  Attrs offset;
  if (c.node.attrs.integer_or("offset", 0) != 0) offset.set("offset", int64_t{1});
  ValueId dx = c.emit("rms_norm_dx", {dy, x, w, rstd}, offset, {0});
  Attrs width{{"width", c.graph.type(w).shape[0].extent}};
  return {dx, c.emit("rms_norm_dw", {dy, x, rstd}, width, {1})};
}

// Mean, variance, normalization and affine map cost about 8 operations for each element; the
// backward part costs about as many.
double norm_flops(In in, const Attrs&, int64_t n) {
  return 8.0 * static_cast<double>(in[0].shape.numel(n));
}
// Counts, forward: square, sum, rstd and weight; backward: the weighted gradient, its mean with x,
// and the difference.
template <int kFlops>
double rms_flops(In in, const Attrs&, int64_t n) {
  return kFlops * static_cast<double>(in[0].shape.numel(n));
}

}  // namespace

void add_norm_ops(std::vector<OpDef>& table) {
  const AttrDef eps{"eps", AttrKind::number,
                    "added to the variance or mean square before its square root, > 0"},
      offset = optional({"offset", AttrKind::flag, "1: w + 1 in place of w"}, int64_t{0});
  const OperandDef x{"x", "T[n,C]", "rows"}, dy{"dy", "T[n,C]", "gradient of the result"},
      y{"y", "T[n,C]", "normalized rows"}, dx{"dx", "T[n,C]", "gradient of x"},
      weight{"w", "T[C]", "weight"}, mean{"mean", "A[n]", "mean of each row"},
      rstd{"rstd", "A[n]", "1 / sqrt(variance + eps) of each row"};
  table.push_back({.name = "layer_norm",
                   .doc = "Normalized rows (x - mean) rstd w + b; w and b are given together or "
                          "left out, which means 1 and 0.",
                   .forms = {{"",
                              {x, optional(weight), optional(OperandDef{"b", "T[C]", "bias"})},
                              {y, mean, rstd}}},
                   .attrs = {eps},
                   .infer = infer_layer_norm,
                   .backward = layer_norm_backward,
                   .flops = norm_flops,
                   .rows = Rows::same_of_one,
                   .cheap = true});
  table.push_back({.name = "layer_norm_dx",
                   .doc = "The gradient of the rows of a layer_norm.",
                   .forms = {{"", {dy, x, optional(weight), mean, rstd}, {dx}}},
                   .infer = infer_layer_norm_dx,
                   .flops = norm_flops});
  table.push_back({.name = "layer_norm_dw",
                   .doc = "The gradients of weight and bias of a layer_norm.",
                   .forms = {{"",
                              {dy, x, mean, rstd},
                              {{"dw", "T[C]", "gradient of w"}, {"db", "T[C]", "gradient of b"}}}},
                   .infer = infer_layer_norm_dw,
                   .flops = norm_flops});
  const OperandDef run_weight{"w", "T[D]", "weight; D divides C"},
      run_rstd{"rstd", "A[n,C/D]", "1 / sqrt(mean of x^2 + eps) of each run"};
  table.push_back(
      {.name = "rms_norm",
       .doc = "Normalizes each run of D columns by itself: x rstd w. With D = C the runs are whole "
              "rows; with the width of a head they are the heads of q or k.",
       .forms = {{"", {x, run_weight}, {y, run_rstd}}},
       .attrs = {eps, offset},
       .infer = infer_rms_norm,
       .backward = rms_norm_backward,
       .flops = rms_flops<4>,
       .rows = Rows::same_of_one,
       .cheap = true});
  table.push_back({.name = "rms_norm_dx",
                   .doc = "The gradient of the rows of an rms_norm.",
                   .forms = {{"", {dy, x, run_weight, run_rstd}, {dx}}},
                   .attrs = {offset},
                   .infer = infer_rms_norm_dx,
                   .flops = rms_flops<7>});
  table.push_back({.name = "rms_norm_dw",
                   .doc = "The gradient of the weight of an rms_norm, for any offset: the sum of "
                          "dy x rstd over rows and runs.",
                   .forms = {{"", {dy, x, run_rstd}, {{"dw", "T[D]", "gradient of w"}}}},
                   .attrs = {{"width", AttrKind::integer, "D"}},
                   .infer = infer_rms_norm_dw,
                   .flops = rms_flops<3>});
}

}  // namespace ds
