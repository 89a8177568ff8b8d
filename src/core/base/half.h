#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

namespace ds {

// `count` values of type f32, bf16 or f16, of any alignment, to and from f32; another type is an
// internal error. Narrowing rounds to nearest, ties to even.
void widen(DType dtype, const std::byte* data, int64_t count, float* out);
void narrow(DType dtype, const float* values, int64_t count, std::byte* out);

}  // namespace ds
