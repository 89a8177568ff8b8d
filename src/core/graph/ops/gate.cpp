// Element-wise products (gated linear units, mul, scale) and the soft cap of scores. A glu is one
// operation, not an activation and a mul, so that its result is rounded once and the activation
// need not be kept. A pass creates it from these two operations.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// Accepts gate and up, which must have the same type, or one matrix x = [gate | up].
Types infer_glu(In in, const Attrs&) {
  if (in.size() == 2) {
    OperandCheck check("glu", in);
    check.matrix(0);
    check.equal(1, in[0]);
    return {in[0]};
  }
  OperandCheck check("glu", in);
  check.matrix(0);
  int64_t columns = in[0].shape[1].extent;
  require(columns % 2 == 0, "glu: operand 'x' must have an even number of columns, got {}",
          in[0].text());
  return {{in[0].dtype, {in[0].shape[0], columns / 2}}};
}

Types infer_glu_dx(In in, const Attrs&) {
  if (in.size() == 3) {
    OperandCheck check("glu_dx", in);
    check.matrix(0);
    check.equal(1, in[0]);
    check.equal(2, in[0]);
    return {in[0], in[0]};
  }
  OperandCheck check("glu_dx", in);
  check.matrix(0);
  check.equal(1, {in[0].dtype, {in[0].shape[0], 2 * in[0].shape[1].extent}});
  return {in[1]};
}

// Appends the gradient operation, which computes act(gate) again so that it need not be kept.
std::vector<ValueId> glu_backward(BackwardContext& c) {
  ValueId dy = c.first_grad();
  if (c.node.in.size() == 1) return {c.emit("glu_dx", {dy, c.node.in[0]}, c.node.attrs, {0})};
  ValueId dgate = c.emit("glu_dx", {dy, c.node.in[0], c.node.in[1]}, c.node.attrs, {0, 1});
  return {dgate, !dgate.exists() ? none : dgate + 1};
}

// The forward part computes act(gate) and one product. The backward part computes act and its
// derivative, whose cost includes one product, and two more products. The costs of activations are
// those of their own operations.
double glu_flops_per_element(const Attrs& attrs, bool backward) {
  const std::string& act = attrs.text("act");
  // The costs of all forms of gelu.
  double forward = 15, slope = 15;
  if (act == "relu") forward = slope = 1;
  if (act == "silu") forward = 7, slope = 11;
  if (act == "tanh") forward = 4, slope = 7;
  if (act == "relu2") forward = 2, slope = 3;
  if (act == "sigmoid") forward = 5, slope = 8;
  if (act == "quick_gelu") forward = 8, slope = 12;
  if (act == "softplus") forward = 8, slope = 6;
  if (act == "laplace") forward = 12, slope = 9;
  return backward ? forward + slope + 2 : forward + 1;
}
double glu_flops(In in, const Attrs& attrs, int64_t n) {
  double elements = static_cast<double>(in[0].shape.numel(n)) / (in.size() == 1 ? 2 : 1);
  return elements * glu_flops_per_element(attrs, false);
}
double glu_dx_flops(In in, const Attrs& attrs, int64_t n) {
  return static_cast<double>(in[0].shape.numel(n)) * glu_flops_per_element(attrs, true);
}

Types infer_mul(In in, const Attrs&) {
  OperandCheck check("mul", in);
  check.floating(0);
  check.equal(1, in[0]);
  return {in[0]};
}

// Appends the gradient of each factor: dy times the other factor.
std::vector<ValueId> mul_backward(BackwardContext& c) {
  ValueId dy = c.first_grad();
  ValueId da = c.emit("mul", {dy, c.node.in[1]}, {}, {0});
  return {da, c.emit("mul", {dy, c.node.in[0]}, {}, {1})};
}

Types infer_scale(In in, const Attrs&) {
  OperandCheck("scale", in).floating(0);
  return {in[0]};
}

std::vector<ValueId> scale_backward(BackwardContext& c) {
  return {c.emit("scale", {c.first_grad()}, c.node.attrs, {0})};
}

void check_cap(std::string_view op, const Attrs& attrs) {
  require(attrs.real("cap") > 0, "{}: attribute 'cap' must be > 0, got {}", op, attrs.real("cap"));
}

Types infer_softcap(In in, const Attrs& attrs) {
  OperandCheck("softcap", in).floating(0);
  check_cap("softcap", attrs);
  return {in[0]};
}

Types infer_softcap_dx(In in, const Attrs& attrs) {
  OperandCheck check("softcap_dx", in);
  check.floating(0);
  check.equal(1, in[0]);
  check_cap("softcap_dx", attrs);
  return {in[0]};
}

// Appends the gradient dy (1 - (y / cap)^2) of y = cap tanh(x / cap). It reads y, so x need not be
// kept.
std::vector<ValueId> softcap_backward(BackwardContext& c) {
  return {c.emit("softcap_dx", {c.first_grad(), c.node.out[0]}, c.node.attrs, {0})};
}

template <int kFlops>
double per_element(In in, const Attrs&, int64_t n) {
  return kFlops * static_cast<double>(in[0].shape.numel(n));
}

}  // namespace

void add_gate_ops(std::vector<OpDef>& table) {
  const AttrDef act{"act",
                    AttrKind::one_of,
                    "the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others "
                    "are operations",
                    {"silu", "gelu_tanh", "gelu_erf", "gelu_10", "relu", "tanh", "relu2", "laplace",
                     "sigmoid", "quick_gelu", "softplus"}},
      cap{"cap", AttrKind::number, "the bound, > 0"};
  const OperandDef gate{"gate", "T[n,F]", "the operand that is activated"},
      up{"up", "T[n,F]", "the operand that is gated"},
      both{"x", "T[n,2F]", "gate and up, side by side"}, x{"x", "T[any]", "any tensor"},
      dy{"dy", "T[n,F]", "gradient of the result"};
  const std::vector<OperandDef> gated{{"y", "T[n,F]", "act(gate) up"}};
  table.push_back({.name = "glu",
                   .doc = "A gated linear unit act(gate) up, rounded once.",
                   .forms = {{"", {gate, up}, gated}, {"packed", {both}, gated}},
                   .attrs = {act},
                   .infer = infer_glu,
                   .backward = glu_backward,
                   .flops = glu_flops,
                   .rows = Rows::same,
                   .cheap = true});
  table.push_back(
      {.name = "glu_dx",
       .doc = "The gradients of a glu.",
       .forms = {{"",
                  {dy, gate, up},
                  {{"dgate", "T[n,F]", "gradient of gate"}, {"dup", "T[n,F]", "gradient of up"}}},
                 {"packed", {dy, both}, {{"dx", "T[n,2F]", "gradient of x"}}}},
       .attrs = {act},
       .infer = infer_glu_dx,
       .flops = glu_dx_flops});
  table.push_back({.name = "mul",
                   .doc = "The product of two tensors of one shape, element by element.",
                   .forms = {{"",
                              {{"a", "T[any]", "first factor"}, {"b", "T[any]", "second factor"}},
                              {{"y", "T[any]", "a b"}}}},
                   .infer = infer_mul,
                   .backward = mul_backward,
                   .flops = per_element<1>,
                   .rows = Rows::same,
                   .cheap = true,
                   .gated = "glu"});
  table.push_back({.name = "scale",
                   .doc = "A tensor times a number, which is rounded to A first. Its gradient is "
                          "the same operation.",
                   .forms = {{"", {x}, {{"y", "T[any]", "x factor"}}}},
                   .attrs = {{"factor", AttrKind::number, "the number"}},
                   .infer = infer_scale,
                   .backward = scale_backward,
                   .flops = per_element<1>,
                   .rows = Rows::same_of_one,
                   .cheap = true});
  table.push_back({.name = "softcap",
                   .doc = "Values bounded smoothly: cap tanh(x / cap).",
                   .forms = {{"", {x}, {{"y", "T[any]", "bounded values"}}}},
                   .attrs = {cap},
                   .infer = infer_softcap,
                   .backward = softcap_backward,
                   .flops = per_element<6>,
                   .rows = Rows::same_of_one,
                   .cheap = true});
  table.push_back(
      {.name = "softcap_dx",
       .doc = "The gradient dy (1 - (y / cap)^2) of a softcap.",
       .forms = {{"",
                  {{"dy", "T[any]", "gradient of the result"}, {"y", "T[any]", "the result"}},
                  {{"dx", "T[any]", "gradient of x"}}}},
       .attrs = {cap},
       .infer = infer_softcap_dx,
       .flops = per_element<4>});
}

}  // namespace ds
