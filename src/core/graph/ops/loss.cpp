// Losses: cross entropy of logits, cross entropy over a linear layer, mean squared error.
//
// linear_cross_entropy avoids the n x V matrix of logits, the largest value of a language model. It
// computes logits in blocks of words and keeps two statistics of each row's softmax; the backward
// part computes the blocks again. With {kept=1} it keeps all logits, which costs memory and saves a
// third of the backward products. The size of blocks depends on V alone, so that the order of sums
// does not depend on the number of rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/round.h"
#include "core/graph/ops/kept_logits.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

double smoothing_of(const Attrs& attrs) { return attrs.real_or("label_smoothing", 0); }

// Checks the attributes of a cross_entropy and returns the type of its loss: a scalar or, with
// reduction "none", one number for each of `rows` rows.
TensorType loss_type(std::string_view op, const Attrs& attrs, DType wide, Dim rows) {
  const double smoothing = smoothing_of(attrs), z = attrs.real_or("z_loss", 0);
  require(smoothing >= 0 && smoothing <= 1,
          "{}: attribute 'label_smoothing' must be in [0, 1], got {}", op, smoothing);
  require(std::isfinite(z) && z >= 0, "{}: attribute 'z_loss' must be a number >= 0, got {}", op,
          z);
  if (attrs.text_or("reduction", "mean") == "none") return {wide, {rows}};
  return {wide, {}};
}

// Returns the types of the loss and of the statistics: two numbers for each row, in the wide type.
Types infer_cross_entropy(In in, const Attrs& attrs) {
  OperandCheck check("cross_entropy", in);
  check.matrix(0);
  check.equal(1, {DS_DTYPE_I32, {in[0].shape[0]}});
  DType wide = wide_type(in[0].dtype);
  Dim rows = in[0].shape[0];
  return {loss_type("cross_entropy", attrs, wide, rows), {wide, {rows, 2}}};
}

Types infer_cross_entropy_dx(In in, const Attrs& attrs) {
  OperandCheck check("cross_entropy_dx", in);
  check.matrix(1);
  DType wide = wide_type(in[1].dtype);
  check.equal(0, loss_type("cross_entropy_dx", attrs, wide, in[1].shape[0]));
  check.equal(2, {DS_DTYPE_I32, {in[1].shape[0]}});
  check.equal(3, {wide, {in[1].shape[0], 2}});
  return {in[1]};
}

// Appends the gradient of the logits. With the statistics of the softmax, one pass over the logits
// suffices. Targets have no gradient.
std::vector<ValueId> cross_entropy_backward(BackwardContext& c) {
  const Node& node = c.node;
  return {c.emit("cross_entropy_dx", {c.first_grad(), node.in[0], node.in[1], node.out[1]},
                 node.attrs, {0}),
          none};
}

// Returns the number of words in a block of logits. Blocks are about equal and have at most 1024
// words. If there are several, all but the last are a multiple of 16.
int64_t block_of(int64_t words) {
  constexpr int64_t kMost = 1024, kUnit = 16;
  int64_t blocks = (words + kMost - 1) / kMost;
  int64_t even = (words + blocks - 1) / blocks;
  return std::min(words, (even + kUnit - 1) / kUnit * kUnit);
}

// Returns the type of the scratch memory for one block of logits.
TensorType logits_block(const TensorType& x, const TensorType& w) {
  return {wide_type(x.dtype), {x.shape[0], block_of(w.shape[0].extent)}};
}

// Returns the type of kept logits. Rows are padded to a multiple of 8 elements, so that with 16-bit
// elements each begins at a multiple of 16 bytes and products read whole vectors.
TensorType kept_logits(const TensorType& x, const TensorType& w) {
  return {x.dtype, {x.shape[0], round_up(w.shape[0].extent, 8)}};
}

// Results after the statistics are scratch memory: all logits if they are kept or else one block of
// them; the logit of each row's target; and, with smoothing, one more number for each row.
Types infer_linear_cross_entropy(In in, const Attrs& attrs) {
  OperandCheck check("linear_cross_entropy", in);
  check.matrix(0);
  check.matrix(1);
  check.constant(1);
  check.equal(1, {in[0].dtype, {in[1].shape[0], in[0].shape[1]}});
  check.equal(2, {DS_DTYPE_I32, {in[0].shape[0]}});
  DType wide = wide_type(in[0].dtype);
  Dim rows = in[0].shape[0];
  TensorType loss = loss_type("linear_cross_entropy", attrs, wide, rows);
  const TensorType logits =
      keeps_logits(attrs) ? kept_logits(in[0], in[1]) : logits_block(in[0], in[1]);
  Types out{loss, {wide, {rows, 2}}, logits, {wide, {rows}}};
  if (smoothing_of(attrs) != 0) out.push_back({wide, {rows}});
  return out;
}

Types infer_linear_cross_entropy_dx(In in, const Attrs& attrs) {
  OperandCheck check("linear_cross_entropy_dx", in);
  check.matrix(1);
  check.matrix(2);
  check.constant(2);
  check.equal(2, {in[1].dtype, {in[2].shape[0], in[1].shape[1]}});
  DType wide = wide_type(in[1].dtype);
  check.equal(0, loss_type("linear_cross_entropy_dx", attrs, wide, in[1].shape[0]));
  check.equal(3, {DS_DTYPE_I32, {in[1].shape[0]}});
  check.equal(4, {wide, {in[1].shape[0], 2}});
  const bool kept = keeps_logits(attrs);
  require(kept == (in.size() == 6),
          "linear_cross_entropy_dx: takes {} operands with {{kept={}}}, got {}", kept ? 6 : 5,
          kept ? 1 : 0, in.size());
  // The gradients of the logits are scratch memory.
  if (kept) {
    check.equal(5, kept_logits(in[1], in[2]));
    return {in[1], in[2], in[5]};
  }
  Types out{in[1], in[2], logits_block(in[1], in[2])};
  // dx is summed over blocks in the wide type before it is rounded once.
  if (wide != in[1].dtype) out.push_back({wide, in[1].shape});
  return out;
}

// Appends the gradients of x and w. The logits are an operand only if they were kept.
std::vector<ValueId> linear_cross_entropy_backward(BackwardContext& c) {
  const Node& node = c.node;
  std::vector<ValueId> in{c.first_grad(), node.in[0], node.in[1], node.in[2], node.out[1]};
  if (keeps_logits(node.attrs)) in.push_back(node.out[2]);
  ValueId dx = c.emit("linear_cross_entropy_dx", std::move(in), node.attrs, {0, 1});
  return {dx, !dx.exists() ? none : dx + 1, none};
}

Types infer_count_targets(In in, const Attrs&) {
  require(in[0].dtype == DS_DTYPE_I32 && in[0].shape.rank() == 1,
          "count_targets: operand 0 must be an i32 vector, got {}", in[0].text());
  return {{DS_DTYPE_F32, {}}};
}

Types infer_mse(In in, const Attrs&) {
  OperandCheck check("mse", in);
  check.floating(0);
  check.equal(1, in[0]);
  return {{wide_type(in[0].dtype), {}}};
}

Types infer_mse_dx(In in, const Attrs&) {
  OperandCheck check("mse_dx", in);
  check.floating(1);
  check.equal(0, {wide_type(in[1].dtype), {}});
  check.equal(2, in[1]);
  return {in[1]};
}

// Appends mse_dx for x and, by symmetry, mse_dx with x and target exchanged for the target.
std::vector<ValueId> mse_backward(BackwardContext& c) {
  ValueId dloss = c.first_grad(), x = c.node.in[0], target = c.node.in[1];
  ValueId dx = c.emit("mse_dx", {dloss, x, target}, {}, {0});
  return {dx, c.emit("mse_dx", {dloss, target, x}, {}, {1})};
}

// Counts 4 for an exponential.
double cross_entropy_flops(In in, const Attrs& attrs, int64_t n) {
  return (smoothing_of(attrs) != 0 ? 8.0 : 6.0) * static_cast<double>(in[0].shape.numel(n));
}
double cross_entropy_dx_flops(In in, const Attrs&, int64_t n) {
  return 6.0 * static_cast<double>(in[1].shape.numel(n));
}
// Counts `products` products of the size of x w^T. The forward part has one. The backward part has
// dx, dw and, unless logits are kept, the logits again.
double head_flops(const TensorType& x, const TensorType& w, int64_t n, double products) {
  double logits = static_cast<double>(x.shape[0].symbolic ? n : x.shape[0].extent) *
                  static_cast<double>(w.shape[0].extent);
  return logits * (2.0 * products * static_cast<double>(x.shape[1].extent) + 6.0);
}
double linear_cross_entropy_flops(In in, const Attrs&, int64_t n) {
  return head_flops(in[0], in[1], n, 1);
}
double linear_cross_entropy_dx_flops(In in, const Attrs& attrs, int64_t n) {
  return head_flops(in[1], in[2], n, keeps_logits(attrs) ? 2 : 3);
}
double count_targets_flops(In in, const Attrs&, int64_t n) {
  return static_cast<double>(in[0].shape.numel(n));
}
double mse_flops(In in, const Attrs&, int64_t n) {
  return 3.0 * static_cast<double>(in[0].shape.numel(n));
}
double mse_dx_flops(In in, const Attrs&, int64_t n) {
  return 2.0 * static_cast<double>(in[1].shape.numel(n));
}

}  // namespace

void add_loss_ops(std::vector<OpDef>& table) {
  const OperandDef loss{"loss", "A[]", "the loss"}, dloss{"dloss", "A[]", "gradient of the loss"},
      entropy{"loss", "A[]", "the loss; A[n] with reduction \"none\", 0 in rows without a target"},
      dentropy{"dloss", "A[]", "gradient of the loss; A[n] with reduction \"none\""},
      logits{"logits", "T[n,V]", "a score for each word"},
      targets{"targets", "i32[n]", "the right word of each row; -100: the row has none"},
      stats{"stats", "A[n,2]", "statistics of each row's softmax for the backward part"},
      x{"x", "T[n,C]", "rows"}, w{"w", "T[V,C]", "a row for each word"},
      kept{"logits", "T[n,P]",
           "the logits that the forward part keeps with {kept=1}; P is V rounded up to a multiple "
           "of 8"};
  const std::vector<OperandDef> head_gradients{{"dx", "T[n,C]", "gradient of x"},
                                               {"dw", "T[V,C]", "gradient of w"}};
  const std::vector<AttrDef> terms{
      optional({"label_smoothing", AttrKind::number,
                "e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over "
                "words of -log p)"},
               0.0),
      optional({"z_loss", AttrKind::number,
                "z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row"},
               0.0),
      optional({"reduction",
                AttrKind::one_of,
                "the mean or the sum of the losses of rows with a target, or a loss for each row",
                {"mean", "sum", "none"}},
               "mean")};
  std::vector<AttrDef> head_terms = terms;
  head_terms.push_back(optional({"kept", AttrKind::integer,
                                 "1: the logits are rounded to T and kept for the backward part; "
                                 "0: the backward part computes them again"},
                                int64_t{0}));
  table.push_back({.name = "cross_entropy",
                   .doc = "The mean over rows with a target of -log p, where p is the softmax of "
                          "the row at its target; 0 without such rows. Attributes change the loss "
                          "of a row, or how losses are combined.",
                   .forms = {{"", {logits, targets}, {entropy, stats}}},
                   .attrs = terms,
                   .infer = infer_cross_entropy,
                   .backward = cross_entropy_backward,
                   .flops = cross_entropy_flops,
                   .ids = IdOperand{1, 0, 1, true},
                   .over_linear = "linear_cross_entropy"});
  table.push_back({.name = "cross_entropy_dx",
                   .doc = "The gradient of the logits of a cross_entropy.",
                   .forms = {{"",
                              {dentropy, logits, targets, stats},
                              {{"dlogits", "T[n,V]", "gradient of logits"}}}},
                   .attrs = terms,
                   .infer = infer_cross_entropy_dx,
                   .flops = cross_entropy_dx_flops});
  table.push_back({.name = "linear_cross_entropy",
                   .doc = "The cross_entropy of x w^T. The logits are computed in blocks of at "
                          "most 1024 words and neither rounded nor kept, or are kept as a whole.",
                   .forms = {{"", {x, w, targets}, {entropy, stats}}},
                   .attrs = head_terms,
                   .infer = infer_linear_cross_entropy,
                   .backward = linear_cross_entropy_backward,
                   .flops = linear_cross_entropy_flops,
                   .products = true,
                   .ids = IdOperand{2, 1, 0, true}});
  table.push_back({.name = "linear_cross_entropy_dx",
                   .doc = "The gradients of a linear_cross_entropy. Logits that were not kept are "
                          "computed again in blocks, and dx is summed over the blocks in A.",
                   .forms = {{"", {dentropy, x, w, targets, stats}, head_gradients},
                             {"kept", {dentropy, x, w, targets, stats, kept}, head_gradients}},
                   .attrs = head_terms,
                   .infer = infer_linear_cross_entropy_dx,
                   .flops = linear_cross_entropy_dx_flops,
                   .products = true});
  table.push_back(
      {.name = "count_targets",
       .doc = "The number of rows with a target, as cross_entropy counts them.",
       .forms = {{"", {targets}, {{"count", "f32[]", "the number of rows with a target"}}}},
       .infer = infer_count_targets,
       .flops = count_targets_flops});
  const OperandDef value{"x", "T[any]", "any tensor"},
      target{"target", "T[any]", "the wanted values of x"};
  table.push_back({.name = "mse",
                   .doc = "The mean of (x - target)^2 over all elements, added in order in f64.",
                   .forms = {{"", {value, target}, {loss}}},
                   .infer = infer_mse,
                   .backward = mse_backward,
                   .flops = mse_flops});
  table.push_back({.name = "mse_dx",
                   .doc = "The gradient 2 dloss (x - target) / elements of x in an mse.",
                   .forms = {{"", {dloss, value, target}, {{"dx", "T[any]", "gradient of x"}}}},
                   .infer = infer_mse_dx,
                   .flops = mse_dx_flops});
}

}  // namespace ds
