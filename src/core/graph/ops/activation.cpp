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

// One activation `op` and its `op`_dx, which take the same attributes. Costs are operations an element; an
// exponential or tanh counts as 4.
struct Activation {
  std::string op;
  double flops, flops_dx;
  std::function<std::string(const Attrs& attrs)> act = {};  // OpDef::activation; empty: the name
  std::vector<std::string> optional = {};
};

std::string gelu_act(const Attrs& attrs) { return "gelu_" + std::string(attrs.text_or("form", "tanh")); }

void check_form(const OperandCheck& check, const Attrs& attrs) {
  check.word(attrs, "form", {"tanh", "erf", "10"}, "tanh");
}

void add_activation(std::vector<OpDef>& table, const Activation& row) {
  std::string op = row.op, dx = op + "_dx";
  auto cost = [](double flops) {
    return
        [flops](In in, const Attrs&, int64_t n) { return flops * static_cast<double>(in[0].shape.numel(n)); };
  };
  auto infer = [op](In in, const Attrs& attrs) -> Types {
    OperandCheck check(op, {"x"}, in);
    check.floating(0);
    check_form(check, attrs);
    return {in[0]};
  };
  auto infer_dx = [dx](In in, const Attrs& attrs) -> Types {
    OperandCheck check(dx, {"dy", "x"}, in);
    check.floating(0);
    check.equal(1, in[0]);
    check_form(check, attrs);
    return {in[0]};
  };
  auto backward = [dx](BackwardContext& c) -> std::vector<ValueId> {
    return {c.emit(dx, {c.first_grad(), c.node.in[0]}, c.node.attrs, {0})};
  };
  auto act = row.act ? row.act : [op](const Attrs&) { return op; };
  table.push_back({.name = op,
                   .min_inputs = 1,
                   .max_inputs = 1,
                   .infer = infer,
                   .backward = backward,
                   .flops = cost(row.flops),
                   .optional = row.optional,
                   .rows = Rows::same_of_one,
                   .cheap = true,
                   .activation = act});
  table.push_back({.name = dx,
                   .min_inputs = 2,
                   .max_inputs = 2,
                   .infer = infer_dx,
                   .flops = cost(row.flops_dx),
                   .optional = row.optional});
}

}  // namespace

void add_activation_ops(std::vector<OpDef>& table) {
  add_activation(table, {"gelu", 15, 15, gelu_act, {"form"}});
  add_activation(table, {"relu", 1, 1});
  add_activation(table, {"silu", 7, 11});
  add_activation(table, {"tanh", 4, 7});
  add_activation(table, {"relu2", 2, 3});
  add_activation(table, {"laplace", 12, 9});
}

}  // namespace ds
