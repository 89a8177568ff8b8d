// The linear layer y = x w^T + b and its three gradients: dx = dy w, dw = dy^T x, db = the sum of
// the rows of dy. The weight is stored as [outputs, inputs], or as [inputs, outputs] if
// `transposed`, as in GPT-2's Conv1D. Each gradient is an operation of its own, so that a frozen
// weight or an input without a gradient saves its product.
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// Returns the type of a weight with the given numbers of outputs and inputs.
TensorType weight_type(bool transposed, DType dtype, Dim outputs, Dim inputs) {
  return transposed ? TensorType{dtype, {inputs, outputs}} : TensorType{dtype, {outputs, inputs}};
}

Types infer_linear(In in, const Attrs& attrs) {
  OperandCheck check("linear", in);
  check.matrix(0);
  check.matrix(1);
  check.constant(1);
  bool transposed = (attrs.integer_or("transposed", 0) != 0);
  DType t = in[0].dtype;
  Dim outputs = in[1].shape[transposed ? 1 : 0];
  check.equal(1, weight_type(transposed, t, outputs, in[0].shape[1]));
  if (in.size() == 3) check.equal(2, {t, {outputs}});
  return {{t, {in[0].shape[0], outputs}}};
}

Types infer_linear_dx(In in, const Attrs& attrs) {
  OperandCheck check("linear_dx", in);
  check.matrix(0);
  check.matrix(1);
  bool transposed = (attrs.integer_or("transposed", 0) != 0);
  Dim inputs = in[1].shape[transposed ? 0 : 1];
  check.equal(1, weight_type(transposed, in[0].dtype, in[0].shape[1], inputs));
  return {{in[0].dtype, {in[0].shape[0], inputs}}};
}

// Returns the type of dw, which is constant: the sum runs over the rows, the only dimension that
// may be symbolic.
Types infer_linear_dw(In in, const Attrs& attrs) {
  OperandCheck check("linear_dw", in);
  check.matrix(0);
  check.matrix(1);
  check.equal(1, {in[0].dtype, {in[0].shape[0], in[1].shape[1]}});
  return {weight_type((attrs.integer_or("transposed", 0) != 0), in[0].dtype, in[0].shape[1],
                      in[1].shape[1])};
}

Types infer_linear_db(In in, const Attrs&) {
  OperandCheck check("linear_db", in);
  check.matrix(0);
  return {{in[0].dtype, {in[0].shape[1]}}};
}

std::vector<ValueId> linear_backward(BackwardContext& c) {
  ValueId dy = c.first_grad();
  std::vector<ValueId> grads(c.node.in.size());
  grads[0] = c.emit("linear_dx", {dy, c.node.in[1]}, c.node.attrs, {0});
  grads[1] = c.emit("linear_dw", {dy, c.node.in[0]}, c.node.attrs, {1});
  if (grads.size() == 3) grads[2] = c.emit("linear_db", {dy}, {}, {2});
  return grads;
}

// Returns the cost of a product: twice the number of elements of operand 0 times the extent of
// dimension `free_dim` of operand 1.
double product_flops(In in, int64_t n, size_t free_dim) {
  const Dim& dim = in[1].shape[free_dim];
  return 2.0 * static_cast<double>(in[0].shape.numel(n)) *
         static_cast<double>(dim.symbolic ? n : dim.extent);
}
// Returns `dim` or, if the weight is stored transposed, the other dimension of the weight.
size_t free_of(const Attrs& attrs, size_t dim) {
  return attrs.integer_or("transposed", 0) != 0 ? 1 - dim : dim;
}
double linear_flops(In in, const Attrs& attrs, int64_t n) {
  return product_flops(in, n, free_of(attrs, 0));
}
double linear_dx_flops(In in, const Attrs& attrs, int64_t n) {
  return product_flops(in, n, free_of(attrs, 1));
}
double linear_dw_flops(In in, const Attrs&, int64_t n) { return product_flops(in, n, 1); }
double linear_db_flops(In in, const Attrs&, int64_t n) {
  return static_cast<double>(in[0].shape.numel(n));
}

}  // namespace

void add_linear_ops(std::vector<OpDef>& table) {
  const AttrDef transposed =
      optional({"transposed", AttrKind::flag, "1: the weight is stored as T[I,O]"}, int64_t{0});
  const OperandDef dy{"dy", "T[n,O]", "gradient of the result"}, x{"x", "T[n,I]", "rows"},
      w{"w", "T[O,I]", "weight"};
  table.push_back({.name = "linear",
                   .doc = "The product x w^T of rows and a weight, plus a bias if given.",
                   .forms = {{"",
                              {x, w, optional(OperandDef{"b", "T[O]", "bias"})},
                              {{"y", "T[n,O]", "products"}}}},
                   .attrs = {transposed},
                   .infer = infer_linear,
                   .backward = linear_backward,
                   .flops = linear_flops,
                   .products = true,
                   .rows = Rows::same_of_one,
                   .linear = true});
  table.push_back({.name = "linear_dx",
                   .doc = "The gradient dy w of the rows of a linear.",
                   .forms = {{"", {dy, w}, {{"dx", "T[n,I]", "gradient of x"}}}},
                   .attrs = {transposed},
                   .infer = infer_linear_dx,
                   .flops = linear_dx_flops,
                   .products = true});
  table.push_back({.name = "linear_dw",
                   .doc = "The gradient dy^T x of the weight of a linear.",
                   .forms = {{"", {dy, x}, {{"dw", "T[O,I]", "gradient of w"}}}},
                   .attrs = {transposed},
                   .infer = infer_linear_dw,
                   .flops = linear_dw_flops,
                   .products = true});
  table.push_back({.name = "linear_db",
                   .doc = "The gradient of the bias of a linear: the sum of each column.",
                   .forms = {{"", {dy}, {{"db", "T[O]", "gradient of b"}}}},
                   .infer = infer_linear_db,
                   .flops = linear_db_flops});
}

}  // namespace ds
