#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.h"

namespace ds {

// The arithmetic of one launch and the least bytes that it moves: every byte that it needs is read
// once and every byte that it produces is written once, as if nothing were cached.
struct Cost {
  double flops = 0;
  double bytes = 0;
  // The type whose rate bounds flops: the operands' type for matrix products, else f32 or f64.
  DType arithmetic = DS_DTYPE_F32;
  // Both costs must have the same `arithmetic`.
  Cost& operator+=(const Cost& other);
};

// Returns the cost of an instruction at extent n. Data movement has no flops. in and out: types in
// the order of docs/reference/ops.md, without the scalars.
Cost launch_cost(const InstrDef& row, std::span<const TensorType> in,
                 std::span<const TensorType> out, const Attrs& attrs, int64_t n);
// Returns the cost of an instruction of a program. n: the number of rows of the instruction's
// micro-step.
Cost instruction_cost(const Program& program, const Instr& instr, int64_t n);

}  // namespace ds
