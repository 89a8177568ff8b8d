#pragma once
#include <cstdint>

#include "kernels/kernel.h"

namespace ds::cpu {

// linear_few() computes `linear` for few rows: it reads the weight once and uses no tiles. The
// `linear` kernels of gemm, onednn and cpu call it for at most kFewRows rows. Each output is a sum
// over the inputs in f32, in an order that depends on neither the number of rows nor the number of
// threads.

// The largest number of rows that linear_few() accepts.
constexpr int64_t kFewRows = 4;
inline bool has_few_rows(const KernelContext& c) { return c.in[0].dims[0] <= kFewRows; }
// Runs a launch of `linear` whose operands are f32, bf16 or f16.
void linear_few(const KernelContext& c);

}  // namespace ds::cpu
