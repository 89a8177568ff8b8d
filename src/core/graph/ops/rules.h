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

// Operands of one op inside its shape rule. Every refusal names the op, the operand and both types.
class OperandCheck {
 public:
  // op: a name of the table, with as many operands as one of its forms takes.
  OperandCheck(std::string_view op, std::span<const TensorType> in) : op_(op), in_(in) {}

  void floating(size_t i) const;  // f32, bf16, f16 or f64
  void matrix(size_t i) const;    // floating, two dimensions, the last one constant
  void constant(size_t i) const;  // no symbolic dimension
  void equal(size_t i, const TensorType& expected) const;
  // Attribute `name` must be an integer >= 1.
  int64_t positive(const Attrs& attrs, std::string_view name) const;
  // Attribute `name`, `otherwise` when absent, must be an integer in [low, high].
  int64_t within(const Attrs& attrs, std::string_view name, int64_t low, int64_t high,
                 int64_t otherwise) const;

 private:
  const std::string& name(size_t i) const;

  std::string_view op_;
  std::span<const TensorType> in_;
};

// An attribute or operand that may be absent.
AttrDef optional(AttrDef attr, std::optional<Attrs::Value> otherwise = {});
OperandDef optional(OperandDef operand);
OperandDef repeated(OperandDef operand, int most);

// Type of statistics and losses: f64 for f64, else f32.
DType wide_type(DType dtype);
bool is_floating(DType dtype);

// One family of rows each; called once, in this order, by op_table().
void add_embedding_ops(std::vector<OpDef>& table);
void add_linear_ops(std::vector<OpDef>& table);
void add_norm_ops(std::vector<OpDef>& table);
void add_activation_ops(std::vector<OpDef>& table);
void add_gate_ops(std::vector<OpDef>& table);
void add_attention_ops(std::vector<OpDef>& table);
void add_rope_ops(std::vector<OpDef>& table);
void add_softmax_ops(std::vector<OpDef>& table);
void add_router_ops(std::vector<OpDef>& table);
void add_elementwise_ops(std::vector<OpDef>& table);
void add_loss_ops(std::vector<OpDef>& table);
void add_custom_ops(std::deque<OpDef>& table);  // by callback: no part of op_table()

}  // namespace ds
