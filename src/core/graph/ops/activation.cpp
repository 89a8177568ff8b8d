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
  std::vector<std::string> optional = {};
};

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
  table.push_back({op, 1, 1, {}, infer, backward, cost(row.flops), row.optional});
  table.push_back({dx, 2, 2, {}, infer_dx, {}, cost(row.flops_dx), row.optional});
}

}  // namespace

void add_activation_ops(std::vector<OpDef>& table) {
  add_activation(table, {"gelu", 15, 15, {"form"}});
  add_activation(table, {"relu", 1, 1});
  add_activation(table, {"silu", 7, 11});
  add_activation(table, {"tanh", 4, 7});
  add_activation(table, {"relu2", 2, 3});
  add_activation(table, {"laplace", 12, 9});
}

}  // namespace ds
