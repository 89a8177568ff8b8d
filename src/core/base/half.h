#pragma once
#include <cstdint>

namespace ds {

// IEEE 754 binary16 and f32. Widening is exact (NaN stays NaN); narrowing rounds to nearest, ties to even,
// and gives infinity from 65520 on.
float widen_half(uint16_t bits);
uint16_t narrow_half(float value);

}  // namespace ds
