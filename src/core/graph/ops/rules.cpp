#include "core/graph/ops/rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>

#include "core/base/error.h"

namespace ds {

bool is_floating(DType dtype) {
  return dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F16 || dtype == DS_DTYPE_F64;
}

DType wide_type(DType dtype) { return dtype == DS_DTYPE_F64 ? DS_DTYPE_F64 : DS_DTYPE_F32; }

void OperandCheck::floating(size_t i) const {
  require(is_floating(in_[i].dtype), "{}: operand '{}' must be floating point, got {}", op_, names_[i],
          in_[i].text());
}

void OperandCheck::matrix(size_t i) const {
  floating(i);
  const Shape& shape = in_[i].shape;
  require(shape.rank() == 2 && !shape[1].symbolic,
          "{}: operand '{}' must be a matrix with a constant last dimension, got {}", op_, names_[i],
          in_[i].text());
}

void OperandCheck::constant(size_t i) const {
  require(!in_[i].shape.symbolic(), "{}: operand '{}' must have a constant shape, got {}", op_, names_[i],
          in_[i].text());
}

void OperandCheck::equal(size_t i, const TensorType& expected) const {
  require(in_[i] == expected, "{}: operand '{}' must be {}, got {}", op_, names_[i], expected.text(),
          in_[i].text());
}

int64_t OperandCheck::positive(const Attrs& attrs, std::string_view name) const {
  const Attrs::Value* value = attrs.find(name);
  const int64_t* integer = value ? std::get_if<int64_t>(value) : nullptr;
  require(integer && *integer >= 1, "{}: attribute '{}' must be an integer >= 1, got '{}'", op_, name,
          attrs.print());
  return *integer;
}

int64_t OperandCheck::within(const Attrs& attrs, std::string_view name, int64_t low, int64_t high,
                             int64_t otherwise) const {
  const Attrs::Value* value = attrs.find(name);
  if (!value) return otherwise;
  const int64_t* integer = std::get_if<int64_t>(value);
  require(integer && *integer >= low && *integer <= high,
          "{}: attribute '{}' must be an integer from {} to {}, got '{}'", op_, name, low, high,
          attrs.print());
  return *integer;
}

std::string_view OperandCheck::word(const Attrs& attrs, std::string_view name,
                                    std::initializer_list<std::string_view> words,
                                    std::string_view otherwise) const {
  const Attrs::Value* value = attrs.find(name);
  if (!value) return otherwise;
  const std::string* text = std::get_if<std::string>(value);
  bool known = text && std::find(words.begin(), words.end(), *text) != words.end();
  require(known, "{}: attribute '{}' must be one of {}, got '{}'", op_, name, fmt::join(words, " "),
          attrs.print());
  return *text;
}

}  // namespace ds
