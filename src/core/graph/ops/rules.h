#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/ops.h"

namespace ds {

// A checker of the operands of one node, for shape rules. Every refusal names the operation, the
// operand or attribute, and what was expected and given.
class OperandCheck {
 public:
  // `op` is a name of the table, and one of its forms has as many operands as `in`.
  OperandCheck(std::string_view op, std::span<const TensorType> in) : op_(op), in_(in) {}

  // Requires the type f32, bf16, f16 or f64.
  void floating(size_t i) const;
  // Requires a floating type and two dimensions, the last of them constant.
  void matrix(size_t i) const;
  // Requires that no dimension is symbolic.
  void constant(size_t i) const;
  void equal(size_t i, const TensorType& expected) const;
  // Returns attribute `name`, which must be an integer >= 1.
  int64_t positive(const Attrs& attrs, std::string_view name) const;
  // Returns attribute `name`, or `otherwise` if it is absent. It must be an integer in [low, high].
  int64_t within(const Attrs& attrs, std::string_view name, int64_t low, int64_t high,
                 int64_t otherwise) const;

 private:
  const std::string& name(size_t i) const;

  std::string_view op_;
  std::span<const TensorType> in_;
};

// These functions make an attribute or operand optional; repeated() allows an operand up to `most`
// times.
AttrDef optional(AttrDef attr, std::optional<Attrs::Value> otherwise = {});
OperandDef optional(OperandDef operand);
OperandDef repeated(OperandDef operand, int most);

// Returns the type of statistics and losses: f64 for f64, otherwise f32.
DType wide_type(DType dtype);
bool is_floating(DType dtype);

// Each of these functions adds the rows of one family. op_table() calls each of them once.
using AddOps = void(std::vector<OpDef>& table);
AddOps add_embedding_ops, add_linear_ops, add_norm_ops, add_activation_ops, add_gate_ops,
    add_attention_ops, add_rope_ops, add_softmax_ops, add_router_ops, add_elementwise_ops,
    add_loss_ops, add_preference_ops, add_dora_ops;
// Adds the operations by callback, which are not in op_table().
void add_custom_ops(std::deque<OpDef>& table);

}  // namespace ds
