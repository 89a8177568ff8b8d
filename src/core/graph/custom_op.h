#pragma once
#include <string>
#include <vector>

namespace ds {

// What the compile side knows of an operation whose kernels are the caller's; kernels/custom.h adds
// them. A node and its instructions share it, and it ends with the last of them.
struct CustomOp {
  std::string name;
  std::string outputs;  // types of results with a blank between: "T[n,16] f32[]"; T: of the first
                        // floating operand
  bool has_backward = false;

  CustomOp() = default;
  CustomOp(const CustomOp&) = delete;
  CustomOp& operator=(const CustomOp&) = delete;
  virtual ~CustomOp() = default;
};

// Operands, results and gradients of one custom operation.
inline constexpr int kMostCustomOperands = 64;

}  // namespace ds
