// Operations on single elements: sums, dropout, layerdrop, constants and casts. Dropout and
// layerdrop read the random stream (seed, step, leaf, op), so that a backward part gets the same
// random numbers from the attributes alone and no mask is kept.
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
  OperandCheck check("add", in);
  check.floating(0);
  check.equal(1, in[0]);
  return {in[0]};
}

// The gradient of each operand is the gradient of the sum itself, so no node is appended.
std::vector<ValueId> add_backward(BackwardContext& c) { return {c.first_grad(), c.first_grad()}; }

// Checks the attributes of an operation that draws random numbers. The number of a stream has 16
// bits in the counter of the random generator (core/base/random.h).
void check_draws(std::string_view op, const Attrs& attrs) {
  double p = attrs.real("p");
  require(p >= 0 && p < 1, "{}: attribute 'p' must be in [0, 1), got {}", op, p);
  int64_t stream = attrs.integer("op");
  require(stream >= 0 && stream < 65536, "{}: attribute 'op' must be in [0, 65536), got {}", op,
          stream);
}

Types infer_dropout(In in, const Attrs& attrs) {
  OperandCheck("dropout", in).floating(0);
  check_draws("dropout", attrs);
  return {in[0]};
}

Types infer_layerdrop(In in, const Attrs& attrs) {
  OperandCheck check("layerdrop", in);
  check.floating(0);
  check.equal(1, in[0]);
  check_draws("layerdrop", attrs);
  return {in[0]};
}

Types infer_layerdrop_dx(In in, const Attrs& attrs) {
  OperandCheck("layerdrop_dx", in).floating(0);
  check_draws("layerdrop_dx", attrs);
  return {in[0], in[0]};
}

std::vector<ValueId> layerdrop_backward(BackwardContext& c) {
  ValueId first = c.emit("layerdrop_dx", {c.first_grad()}, c.node.attrs, {0, 1});
  return {first, first.exists() ? first + 1 : none};
}

// Applies the same dropout to dy, with the same random numbers.
std::vector<ValueId> dropout_backward(BackwardContext& c) {
  return {c.emit("dropout", {c.first_grad()}, c.node.attrs, {0})};
}

DType floating_attribute(std::string_view op, const Attrs& attrs) {
  DType dtype = parse_dtype(attrs.text("dtype"));
  require(is_floating(dtype), "{}: attribute 'dtype' must be floating point, got {}", op,
          dtype_name(dtype));
  return dtype;
}

// Returns the type of the constant. The loss scale is known only when the step runs, so an
// attribute says whether the constant is multiplied by it.
Types infer_fill(In, const Attrs& attrs) {
  attrs.real("value");
  int64_t scaled = attrs.integer_or("loss_scale", 0);
  require(scaled == 0 || scaled == 1, "fill: attribute 'loss_scale' must be 0 or 1, got {}",
          scaled);
  return {{floating_attribute("fill", attrs), {}}};
}

Types infer_cast(In in, const Attrs& attrs) {
  OperandCheck("cast", in).floating(0);
  return {{floating_attribute("cast", attrs), in[0].shape}};
}

// Casts the gradient back to the type of the operand.
std::vector<ValueId> cast_backward(BackwardContext& c) {
  Attrs back{{"dtype", dtype_name(c.graph.type(c.node.in[0]).dtype)}};
  return {c.emit("cast", {c.first_grad()}, back, {0})};
}

// Nothing is dropped when a text is continued, so the operand itself is the result.
ValueId decode_dropout(DecodeContext& c) { return c.in[0]; }
ValueId decode_layerdrop(DecodeContext& c) { return c.in[1]; }

double one_per_element(In in, const Attrs&, int64_t n) {
  return static_cast<double>(in[0].shape.numel(n));
}
double no_flops(In, const Attrs&, int64_t) { return 0; }

}  // namespace

void add_elementwise_ops(std::vector<OpDef>& table) {
  const AttrDef dtype{
      "dtype", AttrKind::one_of, "element type of the result", {"f32", "bf16", "f16", "f64"}};
  table.push_back({.name = "add",
                   .doc = "The sum of two tensors of one shape.",
                   .forms = {{"",
                              {{"a", "T[any]", "first summand"}, {"b", "T[any]", "second summand"}},
                              {{"y", "T[any]", "a + b"}}}},
                   .infer = infer_add,
                   .backward = add_backward,
                   .flops = one_per_element,
                   .rows = Rows::same});
  table.push_back(
      {.name = "dropout",
       .doc = "In a training step each element becomes 0 with probability p, and the others are "
              "multiplied by 1 / (1 - p). Its gradient is the same operation.",
       .forms = {{"",
                  {{"x", "T[any]", "any tensor"}},
                  {{"y", "T[any]", "x with elements dropped"}}}},
       .attrs = {{"p", AttrKind::number, "probability of dropping an element, in [0, 1)"},
                 {"op", AttrKind::integer,
                  "number of the random stream, 0 to 65535, different from those of other dropouts "
                  "and of parameters"}},
       .infer = infer_dropout,
       .backward = dropout_backward,
       .flops = one_per_element,
       .cheap = true,
       .decode = decode_dropout});
  const std::vector<AttrDef> draw{
      {"p", AttrKind::number, "probability of leaving the layer out, in [0, 1)"},
      {"op", AttrKind::integer,
       "number of the random stream, 0 to 65535, different from those of dropouts and of "
       "parameters"}};
  table.push_back(
      {.name = "layerdrop",
       .doc = "The result of a layer or, with probability p in a training step, its input; one "
              "draw decides for all rows of the micro-batch.",
       .forms = {{"",
                  {{"x", "T[any]", "input of the layer"}, {"y", "T[any]", "its result"}},
                  {{"z", "T[any]", "x if the layer is left out, otherwise y"}}}},
       .attrs = draw,
       .infer = infer_layerdrop,
       .backward = layerdrop_backward,
       .flops = no_flops,
       .decode = decode_layerdrop});
  table.push_back(
      {.name = "layerdrop_dx",
       .doc =
           "The gradients of a layerdrop: dz for the operand that was the result, 0 for the other.",
       .forms = {{"",
                  {{"dz", "T[any]", "gradient of the result"}},
                  {{"dx", "T[any]", "gradient of x"}, {"dy", "T[any]", "gradient of y"}}}},
       .attrs = draw,
       .infer = infer_layerdrop_dx,
       .flops = no_flops});
  table.push_back({.name = "fill",
                   .doc = "A scalar of a given value: the seed of gradients.",
                   .forms = {{"", {}, {{"y", "T[]", "the value"}}}},
                   .attrs = {{"value", AttrKind::number, "the value"},
                             dtype,
                             {"loss_scale",
                              AttrKind::integer,
                              "1: the value times the loss scale of the step",
                              {},
                              false,
                              int64_t{0}}},
                   .infer = infer_fill,
                   .flops = no_flops});
  table.push_back(
      {.name = "cast",
       .doc = "The same values in another floating type, rounded to the nearest, ties to even.",
       .forms = {{"", {{"x", "T[any]", "any tensor"}}, {{"y", "[any]", "x in the type dtype"}}}},
       .attrs = {dtype},
       .infer = infer_cast,
       .backward = cast_backward,
       .flops = no_flops,
       .rows = Rows::same_of_one,
       .cheap = true,
       .follows_state = true});
}

}  // namespace ds
