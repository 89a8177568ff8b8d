#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.h"

namespace ds {

// The arithmetic of one launch, and the smallest number of bytes that it moves: it reads every
// input byte once and writes every output byte once.
struct Cost {
  double flops = 0;
  double bytes = 0;
  // The type whose rate bounds the flops: the operands' type for matrix products, otherwise f32 or
  // f64.
  DType arithmetic = DS_DTYPE_F32;
  // Both costs must have the same `arithmetic`.
  Cost& operator+=(const Cost& other);
};

// Returns the cost of an instruction at extent n. Data movement has no flops. `in` and `out` are
// the types of the operands in the order of docs/reference/ops.md, without the scalars.
Cost launch_cost(const InstrDef& row, std::span<const TensorType> in,
                 std::span<const TensorType> out, const Attrs& attrs, int64_t n);
// Returns the cost of an instruction of a program, where `n` is the number of rows of its
// micro-step.
Cost instruction_cost(const Program& program, const Instr& instr, int64_t n);

}  // namespace ds
