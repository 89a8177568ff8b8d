#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// Rows of one activation `op` and its `op`_dx, costing `flops` an element.
void add_activation(std::vector<OpDef>& table, const std::string& op, double flops) {
  std::string dx = op + "_dx";
  auto cost = [flops](In in, const Attrs&, int64_t n) {
    return flops * static_cast<double>(in[0].shape.numel(n));
  };
  auto infer = [op](In in, const Attrs&) -> Types {
    OperandCheck(op, {"x"}, in).floating(0);
    return {in[0]};
  };
  auto infer_dx = [dx](In in, const Attrs&) -> Types {
    OperandCheck check(dx, {"dy", "x"}, in);
    check.floating(0);
    check.equal(1, in[0]);
    return {in[0]};
  };
  auto backward = [dx](BackwardContext& c) -> std::vector<ValueId> {
    return {c.emit(dx, {c.first_grad(), c.node.in[0]}, {}, {0})};
  };
  table.push_back({op, 1, 1, {}, infer, backward, cost});
  table.push_back({dx, 2, 2, {}, infer_dx, {}, cost});
}

}  // namespace

void add_activation_ops(std::vector<OpDef>& table) {
  add_activation(table, "gelu", 15);
  add_activation(table, "relu", 1);
}

}  // namespace ds
