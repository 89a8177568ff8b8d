#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

namespace ds {

// IEEE 754 binary16 and f32. Widening is exact (NaN stays NaN); narrowing rounds to nearest, ties to even,
// and gives infinity from 65520 on.
float widen_half(uint16_t bits);
uint16_t narrow_half(float value);

// `count` values of type f32, bf16 or f16, of any alignment, to and from f32; another type is an internal
// error. Narrowing rounds to nearest, ties to even.
void widen(DType dtype, const std::byte* data, int64_t count, float* out);
void narrow(DType dtype, const float* values, int64_t count, std::byte* out);

}  // namespace ds
