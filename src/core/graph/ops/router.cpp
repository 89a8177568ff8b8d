// The router of a mixture of experts: top_gates chooses k experts for each row and weights them,
// scale_rows multiplies an expert's result by its weight, and load_balance is the auxiliary loss
// that keeps experts equally used (Shazeer et al., 2017; Fedus et al., "Switch Transformers", 2021;
// over all layers together as in Transformers for Mixtral). Choices are not differentiable, so
// gradients treat them as constants.
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// The largest number of layers whose logits one load_balance accepts.
constexpr int kMaxLayers = 1024;

// Checks attribute 'k', the number of columns of `logits` that are chosen.
void check_k(std::string_view op, const OperandCheck& check, const Attrs& attrs,
             const TensorType& logits) {
  int64_t k = check.positive(attrs, "k"), experts = logits.shape[1].extent;
  require(k <= experts,
          "{}: attribute 'k' must be at most the columns of operand 'logits' {}, got {}", op,
          logits.text(), k);
}

Types infer_top_gates(In in, const Attrs& attrs) {
  OperandCheck check("top_gates", in);
  check.matrix(0);
  check_k("top_gates", check, attrs, in[0]);
  return {in[0]};
}

Types infer_top_gates_dx(In in, const Attrs& attrs) {
  OperandCheck check("top_gates_dx", in);
  check.matrix(0);
  check.equal(1, in[0]);
  check_k("top_gates_dx", check, attrs, in[1]);
  return {in[1]};
}

// Appends the gradient operation, which reads the logits and repeats the choice.
std::vector<ValueId> top_gates_backward(BackwardContext& c) {
  return {c.emit("top_gates_dx", {c.first_grad(), c.node.in[0]}, c.node.attrs, {0})};
}

// Checks attribute 'column', an index below `columns`.
void check_column(std::string_view op, const Attrs& attrs, int64_t columns) {
  int64_t column = attrs.integer("column");
  require(column >= 0 && column < columns, "{}: attribute 'column' must be from 0 to {}, got {}",
          op, columns - 1, column);
}

Types infer_scale_rows(In in, const Attrs& attrs) {
  OperandCheck check("scale_rows", in);
  check.matrix(0);
  check.matrix(1);
  check.equal(1, {in[0].dtype, {in[0].shape[0], in[1].shape[1]}});
  check_column("scale_rows", attrs, in[1].shape[1].extent);
  return {in[0]};
}

Types infer_scale_rows_dw(In in, const Attrs& attrs) {
  OperandCheck check("scale_rows_dw", in);
  check.matrix(0);
  check.equal(1, in[0]);
  int64_t columns = check.positive(attrs, "columns");
  check_column("scale_rows_dw", attrs, columns);
  return {{in[0].dtype, {in[0].shape[0], columns}}};
}

// Appends dx, which is dy scaled by the same gates, and the gradient of the gates, which is zero
// outside one column.
std::vector<ValueId> scale_rows_backward(BackwardContext& c) {
  ValueId dy = c.first_grad(), x = c.node.in[0], gates = c.node.in[1];
  ValueId dx = c.emit("scale_rows", {dy, gates}, c.node.attrs, {0});
  Attrs attrs{{"columns", c.graph.type(gates).shape[1].extent},
              {"column", c.node.attrs.integer("column")}};
  return {dx, c.emit("scale_rows_dw", {dy, x}, attrs, {1})};
}

// Returns the number of layers. The operands of load_balance are the logits of one or more layers,
// optionally followed by a mask of rows.
size_t layers_of(In in) {
  return in.size() - (in.size() > 1 && in.back().dtype == DS_DTYPE_I32 ? 1 : 0);
}

Types infer_load_balance(In in, const Attrs& attrs) {
  OperandCheck check("load_balance", in);
  check.matrix(0);
  check_k("load_balance", check, attrs, in[0]);
  size_t layers = layers_of(in);
  for (size_t i = 1; i < in.size(); ++i) {
    TensorType wanted = i < layers ? in[0] : TensorType{DS_DTYPE_I32, {in[0].shape[0]}};
    require(in[i] == wanted, "load_balance: operand {} must be {}, got {}", i, wanted.text(),
            in[i].text());
  }
  return {{wide_type(in[0].dtype), {}}};
}

Types infer_load_balance_dx(In in, const Attrs& attrs) {
  OperandCheck check("load_balance_dx", in);
  check.matrix(1);
  In rest = in.subspan(1);
  Types loss = infer_load_balance(rest, attrs);
  check.equal(0, loss[0]);
  rest = rest.first(layers_of(rest));
  return {rest.begin(), rest.end()};
}

// Appends the gradients of the logits. The mask, which is optional and last, gets no gradient.
std::vector<ValueId> load_balance_backward(BackwardContext& c) {
  std::vector<ValueId> in{c.first_grad()};
  in.insert(in.end(), c.node.in.begin(), c.node.in.end());
  bool masked = c.graph.type(c.node.in.back()).dtype == DS_DTYPE_I32;
  std::vector<size_t> layers(c.node.in.size() - (masked ? 1 : 0));
  std::iota(layers.begin(), layers.end(), size_t{0});
  ValueId first = c.emit("load_balance_dx", in, c.node.attrs, layers);
  std::vector<ValueId> grads(c.node.in.size());
  for (size_t i : layers) grads[i] = !first.exists() ? none : first + static_cast<int32_t>(i);
  return grads;
}

// Counts a softmax of every element (an exponential counts 4) and a comparison for each of the k
// choices.
double choice_flops(const TensorType& logits, const Attrs& attrs, int64_t n) {
  double elements = static_cast<double>(logits.shape.numel(n));
  return elements * (6 + static_cast<double>(attrs.integer("k")));
}
double top_gates_flops(In in, const Attrs& attrs, int64_t n) {
  return choice_flops(in[0], attrs, n);
}
double top_gates_dx_flops(In in, const Attrs& attrs, int64_t n) {
  return choice_flops(in[1], attrs, n) + 4 * static_cast<double>(in[1].shape.numel(n));
}
double scale_rows_flops(In in, const Attrs&, int64_t n) {
  return static_cast<double>(in[0].shape.numel(n));
}
double scale_rows_dw_flops(In in, const Attrs&, int64_t n) {
  return 2 * static_cast<double>(in[0].shape.numel(n));
}
double load_balance_flops(In in, const Attrs& attrs, int64_t n) {
  return static_cast<double>(layers_of(in)) * choice_flops(in[0], attrs, n);
}
double load_balance_dx_flops(In in, const Attrs& attrs, int64_t n) {
  double layers = static_cast<double>(layers_of(in.subspan(1))),
         elements = static_cast<double>(in[1].shape.numel(n));
  return layers * (choice_flops(in[1], attrs, n) + 4 * elements);
}

}  // namespace

void add_router_ops(std::vector<OpDef>& table) {
  const OperandDef logits{"logits", "T[n,E]", "a score for each of E experts"},
      gates{"gates", "T[n,E]", "weights of the experts"}, x{"x", "T[n,C]", "rows"};
  const AttrDef k{"k", AttrKind::integer, "experts of a row, at most E"},
      normalize = optional(
          {"normalize", AttrKind::flag, "1: the weights of a row are divided by their sum"},
          int64_t{1}),
      column{"column", AttrKind::integer, "index of the expert, below E"};
  table.push_back({.name = "top_gates",
                   .doc = "The softmax of each row at its k largest logits, and 0 elsewhere; of "
                          "equal logits, those of lower index are chosen.",
                   .forms = {{"", {logits}, {gates}}},
                   .attrs = {k, normalize},
                   .infer = infer_top_gates,
                   .backward = top_gates_backward,
                   .flops = top_gates_flops,
                   .rows = Rows::same});
  table.push_back({.name = "top_gates_dx",
                   .doc = "The gradient of the logits of a top_gates, for a fixed choice.",
                   .forms = {{"",
                              {{"dy", "T[n,E]", "gradient of the gates"}, logits},
                              {{"dlogits", "T[n,E]", "gradient of logits"}}}},
                   .attrs = {k, normalize},
                   .infer = infer_top_gates_dx,
                   .flops = top_gates_dx_flops});
  table.push_back(
      {.name = "scale_rows",
       .doc = "Each row times its element of one column of gates: y[r] = x[r] gates[r, column].",
       .forms = {{"", {x, gates}, {{"y", "T[n,C]", "scaled rows"}}}},
       .attrs = {column},
       .infer = infer_scale_rows,
       .backward = scale_rows_backward,
       .flops = scale_rows_flops,
       .rows = Rows::same});
  table.push_back({.name = "scale_rows_dw",
                   .doc = "The gradient of the gates of a scale_rows: the product of dy[r] and "
                          "x[r] in its column, 0 in the others.",
                   .forms = {{"",
                              {{"dy", "T[n,C]", "gradient of the result"}, x},
                              {{"dgates", "T[n,E]", "gradient of gates"}}}},
                   .attrs = {{"columns", AttrKind::integer, "E"}, column},
                   .infer = infer_scale_rows_dw,
                   .flops = scale_rows_dw_flops});
  const OperandDef layers = repeated(
                       OperandDef{"logits", "T[n,E]", "scores of each layer, one operand for each"},
                       kMaxLayers),
                   mask = optional(OperandDef{"mask", "i32[n]", "rows where it is 0 do not count"});
  table.push_back(
      {.name = "load_balance",
       .doc = "E times the sum of f p over the experts, where, over the rows of all layers, f is "
              "the share of rows that have the expert among their k largest and p the mean of its "
              "softmax.",
       .forms = {{"", {layers, mask}, {{"loss", "A[]", "k if all experts are used equally"}}}},
       .attrs = {k},
       .infer = infer_load_balance,
       .backward = load_balance_backward,
       .flops = load_balance_flops});
  table.push_back(
      {.name = "load_balance_dx",
       .doc = "The gradients of the logits of a load_balance, for fixed choices.",
       .forms = {{"",
                  {{"dloss", "A[]", "gradient of the loss"}, layers, mask},
                  {repeated(OperandDef{"dlogits", "T[n,E]", "gradient of each of the logits"},
                            kMaxLayers)}}},
       .attrs = {k},
       .infer = infer_load_balance_dx,
       .flops = load_balance_dx_flops});
}

}  // namespace ds
