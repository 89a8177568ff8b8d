#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.h"

namespace ds {

// What one launch computes and the least it moves: every byte that it needs read once, every byte
// that it makes written once, as if nothing were in a cache.
struct Cost {
  double flops = 0;
  double bytes = 0;
  DType arithmetic = DS_DTYPE_F32;  // whose rate bounds flops: the operands' type for products of
                                    // operands, else f32 or f64
  Cost& operator+=(const Cost& other);  // of equal arithmetic
};

// Cost of an instruction at extent n; moves have no flops. in and out: types in the order of
// docs/reference/ops.md, without the scalars.
Cost launch_cost(const InstrDef& row, std::span<const TensorType> in,
                 std::span<const TensorType> out, const Attrs& attrs, int64_t n);
// The same of an instruction of a program, at n of its micro-step.
Cost instruction_cost(const Program& program, const Instr& instr, int64_t n);

}  // namespace ds
