#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/graph/ops.h"

namespace ds {

// Operands of one op inside its shape rule. Every refusal names the op, the operand and both types.
class OperandCheck {
 public:
  OperandCheck(std::string_view op, std::vector<std::string_view> names, std::span<const TensorType> in)
      : op_(op), names_(std::move(names)), in_(in) {}

  void floating(size_t i) const;  // f32, bf16, f16 or f64
  void matrix(size_t i) const;    // floating, two dimensions, the last one constant
  void constant(size_t i) const;  // no symbolic dimension
  void equal(size_t i, const TensorType& expected) const;
  // Attribute `name` must be an integer >= 1.
  int64_t positive(const Attrs& attrs, std::string_view name) const;
  // Attribute `name`, `otherwise` when absent, must be an integer in [low, high].
  int64_t within(const Attrs& attrs, std::string_view name, int64_t low, int64_t high,
                 int64_t otherwise) const;
  // Attribute `name`, 0 when absent, must be 0 or 1.
  bool flag(const Attrs& attrs, std::string_view name) const { return within(attrs, name, 0, 1, 0) != 0; }
  // Attribute `name`, `otherwise` when absent, must be a string of `words`.
  std::string_view word(const Attrs& attrs, std::string_view name,
                        std::initializer_list<std::string_view> words, std::string_view otherwise = "") const;

 private:
  std::string_view op_;
  std::vector<std::string_view> names_;
  std::span<const TensorType> in_;
};

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
void add_router_ops(std::vector<OpDef>& table);
void add_elementwise_ops(std::vector<OpDef>& table);
void add_loss_ops(std::vector<OpDef>& table);

}  // namespace ds
