// Activations, element by element. add_activation_ops() describes each in one row, from which
// add_activation() derives the operation, its gradient operation `op`_dx (dy, x -> dx) and the
// backward rule that connects them. The gradient reads x and not y, since some derivatives cannot
// be computed from y alone.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// An activation `op` and its gradient `op`_dx, which have the same attributes. Costs are operations
// per element; an exponential or tanh counts 4.
struct Activation {
  std::string op;
  double flops, flops_dx;
  std::string formula;
  // The value of OpDef::activation. If empty, a function that returns the name of the operation.
  std::function<std::string(const Attrs& attrs)> act = {};
  std::vector<AttrDef> attrs = {};
};

std::string gelu_act(const Attrs& attrs) {
  return "gelu_" + std::string(attrs.text_or("form", "tanh"));
}

// Adds both rows of an activation. Shapes and types do not change.
void add_activation(std::vector<OpDef>& table, const Activation& row) {
  std::string op = row.op, dx = op + "_dx";
  auto cost = [](double flops) {
    return [flops](In in, const Attrs&, int64_t n) {
      return flops * static_cast<double>(in[0].shape.numel(n));
    };
  };
  auto infer = [op](In in, const Attrs&) -> Types {
    OperandCheck(op, in).floating(0);
    return {in[0]};
  };
  auto infer_dx = [dx](In in, const Attrs&) -> Types {
    OperandCheck check(dx, in);
    check.floating(0);
    check.equal(1, in[0]);
    return {in[0]};
  };
  auto backward = [dx](BackwardContext& c) -> std::vector<ValueId> {
    return {c.emit(dx, {c.first_grad(), c.node.in[0]}, c.node.attrs, {0})};
  };
  auto act = row.act ? row.act : [op](const Attrs&) { return op; };
  const OperandDef x{"x", "T[any]", "any tensor"};
  table.push_back({.name = op,
                   .doc = "The activation " + row.formula + " of each element.",
                   .forms = {{"", {x}, {{"y", "T[any]", "activations"}}}},
                   .attrs = row.attrs,
                   .infer = infer,
                   .backward = backward,
                   .flops = cost(row.flops),
                   .rows = Rows::same_of_one,
                   .cheap = true,
                   .activation = act});
  table.push_back({.name = dx,
                   .doc = "The gradient of the activation " + op + ".",
                   .forms = {{"",
                              {{"dy", "T[any]", "gradient of the result"}, x},
                              {{"dx", "T[any]", "gradient of x"}}}},
                   .attrs = row.attrs,
                   .infer = infer_dx,
                   .flops = cost(row.flops_dx)});
}

}  // namespace

void add_activation_ops(std::vector<OpDef>& table) {
  const AttrDef form = optional({"form",
                                 AttrKind::one_of,
                                 "tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 "
                                 "x (1 + erf(x/sqrt(2))); 10: as erf, but at most 10",
                                 {"tanh", "erf", "10"}},
                                "tanh");
  add_activation(table, {"gelu",
                         15,
                         15,
                         "x Phi(x), Phi the distribution function of normal numbers,",
                         gelu_act,
                         {form}});
  add_activation(table, {"relu", 1, 1, "max(x, 0)"});
  add_activation(table, {"silu", 7, 11, "x / (1 + exp(-x))"});
  add_activation(table, {"tanh", 4, 7, "tanh(x)"});
  add_activation(table, {"relu2", 2, 3, "max(x, 0)^2"});
  add_activation(table, {"sigmoid", 5, 8, "1 / (1 + exp(-x))"});
  add_activation(table, {"quick_gelu", 8, 12, "x / (1 + exp(-1.702 x))"});
  add_activation(table, {"softplus", 8, 6, "log(1 + exp(x))"});
  add_activation(table, {"laplace", 12, 9, "0.5 (1 + erf((x - 0.707107) / (0.282095 sqrt(2))))"});
}

}  // namespace ds
