// The direction and the magnitude of a weight with an adapter (DoRA, arXiv:2402.09353). A layer
// computes m / |W + s B A| (W + s B A) x, where the norm is one of rows. It is a constant for the
// gradient, as section 4.3 of the paper proposes, so nothing flows to the operands of dora_norm.
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

Types infer_dora_norm(In in, const Attrs& attrs) {
  OperandCheck check("dora_norm", in);
  for (size_t i = 0; i < 3; ++i) {
    check.matrix(i);
    check.constant(i);
  }
  attrs.real("factor");
  const bool transposed = attrs.integer_or("transposed", 0) != 0;
  const Dim outputs = in[0].shape[transposed ? 1 : 0], inputs = in[0].shape[transposed ? 0 : 1];
  check.equal(1, {in[0].dtype, {in[1].shape[0], inputs}});
  check.equal(2, {in[0].dtype, {outputs, in[1].shape[0]}});
  return {{in[0].dtype, {outputs}}};
}

// Checks two matrices of one type from operand `first` on, and vectors of their width after them.
TensorType check_columns(const OperandCheck& check, In in, size_t first) {
  check.matrix(first);
  check.equal(first + 1, in[first]);
  const TensorType vector{in[first].dtype, {in[first].shape[1]}};
  for (size_t i = first + 2; i < in.size(); ++i) check.equal(i, vector);
  return vector;
}

Types infer_dora(In in, const Attrs&) {
  check_columns(OperandCheck("dora", in), in, 0);
  return {in[0]};
}

Types infer_dora_dx(In in, const Attrs&) {
  OperandCheck check("dora_dx", in);
  check.matrix(0);
  for (size_t i : {1, 2}) check.equal(i, {in[0].dtype, {in[0].shape[1]}});
  return {in[0], in[0]};
}

Types infer_dora_dm(In in, const Attrs&) {
  OperandCheck check("dora_dm", in);
  check.matrix(0);
  check.equal(1, in[0]);
  return {check_columns(check, in, 1)};
}

// The bias is taken out of `base`, so its gradient is the negative of that of the base, summed.
std::vector<ValueId> dora_backward(BackwardContext& c) {
  const std::vector<ValueId>& in = c.node.in;
  const ValueId dy = c.first_grad();
  std::vector<ValueId> grads(in.size());
  const bool bias = in.size() == 5 && c.wanted[4];
  std::vector<ValueId> of_magnitude{dy, in[0], in[1], in[3]};
  if (in.size() == 5) of_magnitude.push_back(in[4]);
  grads[2] = c.emit("dora_dm", of_magnitude, {}, {2});
  std::vector<size_t> operands{0, 1};
  if (c.wanted[0] || c.wanted[1] || bias) {
    const ValueId first = c.graph.add("dora_dx", {dy, in[2], in[3]}, {});
    for (size_t i : operands) {
      grads[i] = first + static_cast<int32_t>(i);
      c.graph.rename_value(grads[i],
                           unique_name(c.graph, "d." + c.graph.values[in[i]].name + ".dora"));
    }
  }
  if (bias) {
    const ValueId sum = c.emit("linear_db", {grads[0]}, {}, {4});
    grads[4] = c.emit("scale", {sum}, {{"factor", -1.0}}, {4});
  }
  return grads;
}

double dora_norm_flops(In in, const Attrs&, int64_t n) {
  return 2.0 * static_cast<double>(in[0].shape.numel(n)) *
         static_cast<double>(in[1].shape[0].extent + 1);
}
double per_element(In in, int64_t n, double flops) {
  return flops * static_cast<double>(in[0].shape.numel(n));
}
double dora_flops(In in, const Attrs&, int64_t n) { return per_element(in, n, 5); }
double dora_dx_flops(In in, const Attrs&, int64_t n) { return per_element(in, n, 3); }
double dora_dm_flops(In in, const Attrs&, int64_t n) { return per_element(in, n, 4); }

}  // namespace

void add_dora_ops(std::vector<OpDef>& table) {
  const OperandDef base{"base", "T[n,O]", "products of rows and the weight, plus the bias"},
      product{"product", "T[n,O]", "products of rows and the adapter"},
      m{"m", "T[O]", "magnitude of each output"}, norms{"norms", "T[O]", "results of dora_norm"},
      bias = optional(OperandDef{"b", "T[O]", "bias in base"}),
      dy{"dy", "T[n,O]", "gradient of the result"};
  table.push_back(
      {.name = "dora_norm",
       .doc = "The Euclidean norms of the rows of an adapted weight w + factor b a. Its gradient "
              "counts as 0.",
       .forms = {{"",
                  {{"w", "T[O,I]", "weight"},
                   {"a", "T[R,I]", "first matrix of the adapter"},
                   {"b", "T[O,R]", "second matrix of the adapter"}},
                  {{"norms", "T[O]", "norm of each row"}}}},
       .attrs = {{"factor", AttrKind::number, "factor of the product b a"},
                 optional({"transposed", AttrKind::flag, "1: the weight is stored as T[I,O]"},
                          int64_t{0})},
       .infer = infer_dora_norm,
       .flops = dora_norm_flops,
       .rows = Rows::same});
  table.push_back({.name = "dora",
                   .doc = "The values that an adapter with magnitudes adds to the result of a "
                          "linear: with c = m / "
                          "norms, (c - 1) (base - b) + c product. norms counts as a constant.",
                   .forms = {{"", {base, product, m, norms, bias}, {{"y", "T[n,O]", "the sums"}}}},
                   .infer = infer_dora,
                   .backward = dora_backward,
                   .flops = dora_flops,
                   .rows = Rows::same});
  table.push_back({.name = "dora_dx",
                   .doc = "The gradients (c - 1) dy and c dy of base and product of a dora.",
                   .forms = {{"",
                              {dy, m, norms},
                              {{"dbase", "T[n,O]", "gradient of base"},
                               {"dproduct", "T[n,O]", "gradient of product"}}}},
                   .infer = infer_dora_dx,
                   .flops = dora_dx_flops});
  table.push_back(
      {.name = "dora_dm",
       .doc = "The gradient of the magnitudes of a dora: the sum over rows of dy (base "
              "- b + product) / norms.",
       .forms = {{"", {dy, base, product, norms, bias}, {{"dm", "T[O]", "gradient of m"}}}},
       .infer = infer_dora_dm,
       .flops = dora_dm_flops});
}

}  // namespace ds
