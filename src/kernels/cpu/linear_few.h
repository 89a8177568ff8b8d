#pragma once
#include <cstdint>

#include "kernels/kernel.h"

namespace ds::cpu {

// `linear` of few rows reads its weight once and does little else: no packing, no product of
// blocks. It is what every family's `linear` runs for them. Each output is a sum over the inputs in
// one fixed order, in f32, whatever the number of rows and threads.
constexpr int64_t kFewRows = 4;
inline bool has_few_rows(const KernelContext& c) { return c.in[0].dims[0] <= kFewRows; }
void linear_few(const KernelContext& c);  // operands of `linear`, f32 or bf16

}  // namespace ds::cpu
