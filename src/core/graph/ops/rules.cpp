#include "core/graph/ops/rules.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/error.h"

namespace ds {

bool is_floating(DType dtype) {
  return dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F16 ||
         dtype == DS_DTYPE_F64;
}

DType wide_type(DType dtype) { return dtype == DS_DTYPE_F64 ? DS_DTYPE_F64 : DS_DTYPE_F32; }

// Returns the name that an operand has in the form with this number of operands.
const std::string& OperandCheck::name(size_t i) const {
  const OpForm* form = op(op_).form(in_.size());
  ensure(form != nullptr, "{}: takes no {} operands", op_, in_.size());
  return form->places(in_.size()).at(i)->name;
}

void OperandCheck::floating(size_t i) const {
  require(is_floating(in_[i].dtype), "{}: operand '{}' must be floating point, got {}", op_,
          name(i), in_[i].text());
}

void OperandCheck::matrix(size_t i) const {
  floating(i);
  const Shape& shape = in_[i].shape;
  require(shape.rank() == 2 && !shape[1].symbolic,
          "{}: operand '{}' must be a matrix with a constant last dimension, got {}", op_, name(i),
          in_[i].text());
}

void OperandCheck::constant(size_t i) const {
  require(!in_[i].shape.symbolic(), "{}: operand '{}' must have a constant shape, got {}", op_,
          name(i), in_[i].text());
}

// A symbolic dimension is equal only to another symbolic one, since n is one number in the whole
// graph.
void OperandCheck::equal(size_t i, const TensorType& expected) const {
  require(in_[i] == expected, "{}: operand '{}' must be {}, got {}", op_, name(i), expected.text(),
          in_[i].text());
}

int64_t OperandCheck::positive(const Attrs& attrs, std::string_view name) const {
  const Attrs::Value* value = attrs.find(name);
  const int64_t* integer = value ? std::get_if<int64_t>(value) : nullptr;
  require(integer && *integer >= 1, "{}: attribute '{}' must be an integer >= 1, got attributes {}",
          op_, name, attrs.print());
  return *integer;
}

int64_t OperandCheck::within(const Attrs& attrs, std::string_view name, int64_t low, int64_t high,
                             int64_t otherwise) const {
  const Attrs::Value* value = attrs.find(name);
  if (!value) return otherwise;
  const int64_t* integer = std::get_if<int64_t>(value);
  require(integer && *integer >= low && *integer <= high,
          "{}: attribute '{}' must be an integer from {} to {}, got attributes {}", op_, name, low,
          high, attrs.print());
  return *integer;
}

AttrDef optional(AttrDef attr, std::optional<Attrs::Value> otherwise) {
  attr.required = false;
  attr.otherwise = std::move(otherwise);
  return attr;
}

OperandDef optional(OperandDef operand) {
  operand.least = 0;
  return operand;
}

OperandDef repeated(OperandDef operand, int most) {
  operand.most = most;
  return operand;
}

}  // namespace ds
