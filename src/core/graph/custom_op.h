#pragma once
#include <string>
#include <vector>

namespace ds {

// The part of a custom operation that the compile side knows. kernels/custom.h adds the caller's
// kernels. A node and its instructions share the object, and the last owner destroys it.
struct CustomOp {
  std::string name;
  // Types of the results, separated by blanks: "T[n,16] f32[]". T stands for the type of the first
  // floating operand.
  std::string outputs;
  bool has_backward = false;

  CustomOp() = default;
  CustomOp(const CustomOp&) = delete;
  CustomOp& operator=(const CustomOp&) = delete;
  virtual ~CustomOp() = default;
};

// The largest number of operands, and of results, of one custom operation.
inline constexpr int kMostCustomOperands = 64;

}  // namespace ds
