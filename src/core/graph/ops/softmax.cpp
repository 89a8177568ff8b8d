// The softmax of whole rows, or of the columns up to the row's index in its sequence
// (causal_softmax). The gradient of both is one operation, which reads only the result.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

Types infer_softmax(In in, const Attrs&) {
  OperandCheck("softmax", in).matrix(0);
  return {in[0]};
}

Types infer_causal_softmax(In in, const Attrs& attrs) {
  OperandCheck check("causal_softmax", in);
  check.matrix(0);
  check.positive(attrs, "seq");
  return {in[0]};
}

Types infer_softmax_dx(In in, const Attrs&) {
  OperandCheck check("softmax_dx", in);
  check.matrix(0);
  check.equal(1, in[0]);
  return {in[0]};
}

std::vector<ValueId> softmax_backward(BackwardContext& c) {
  return {c.emit("softmax_dx", {c.first_grad(), c.node.out[0]}, c.node.attrs, {0})};
}

// Appends softmax_dx, which is also right for causal rows: a column that a row does not see has y =
// 0 and therefore gradient 0.
std::vector<ValueId> causal_softmax_backward(BackwardContext& c) {
  return {c.emit("softmax_dx", {c.first_grad(), c.node.out[0]}, {}, {0})};
}

// Counts 4 for an exponential. Columns that a causal row does not see are counted as well.
double softmax_flops(In in, const Attrs&, int64_t n) {
  return 8.0 * static_cast<double>(in[0].shape.numel(n));
}
double softmax_dx_flops(In in, const Attrs& attrs, int64_t n) {
  return (attrs.integer_or("log", 0) != 0 ? 7.0 : 4.0) * static_cast<double>(in[0].shape.numel(n));
}

}  // namespace

void add_softmax_ops(std::vector<OpDef>& table) {
  const OperandDef x{"x", "T[n,C]", "rows"}, y{"y", "T[n,C]", "a distribution for each row"};
  const AttrDef log =
      optional({"log", AttrKind::flag, "1: the logarithm of the softmax"}, int64_t{0});
  table.push_back({.name = "softmax",
                   .doc = "The softmax exp(x) / sum exp(x) of each row, or its logarithm.",
                   .forms = {{"", {x}, {y}}},
                   .attrs = {log},
                   .infer = infer_softmax,
                   .backward = softmax_backward,
                   .flops = softmax_flops,
                   .rows = Rows::same_of_one});
  table.push_back(
      {.name = "causal_softmax",
       .doc = "The softmax of the columns 0 to r mod seq of each row r; the other columns are 0.",
       .forms = {{"", {x}, {y}}},
       .attrs = {{"seq", AttrKind::integer, "rows of a sequence"}},
       .infer = infer_causal_softmax,
       .backward = causal_softmax_backward,
       .flops = softmax_flops});
  table.push_back(
      {.name = "softmax_dx",
       .doc = "The gradient y (dy - sum dy y) of the rows of a softmax or causal_softmax, or dy - "
              "exp(y) sum dy if y is the logarithm.",
       .forms = {{"",
                  {{"dy", "T[n,C]", "gradient of the result"}, {"y", "T[n,C]", "the result"}},
                  {{"dx", "T[n,C]", "gradient of x"}}}},
       .attrs = {log},
       .infer = infer_softmax_dx,
       .flops = softmax_dx_flops});
}

}  // namespace ds
