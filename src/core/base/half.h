#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

namespace ds {

// These functions convert `count` values of type f32, bf16 or f16, at any alignment, to f32 (widen)
// and from f32 (narrow). Any other type is an internal error. Narrowing rounds to nearest, ties to
// even.
void widen(DType dtype, const std::byte* data, int64_t count, float* out);
void narrow(DType dtype, const float* values, int64_t count, std::byte* out);

}  // namespace ds
