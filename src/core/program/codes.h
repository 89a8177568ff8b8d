#pragma once
#include <cstdint>

#include "core/program/granules.h"

namespace ds {

// Quantized elements: each granule has an f32 scale, followed by its elements as signed integers of
// `bits` (8 or 4) in units of the scale. With 4 bits, byte j holds element j in its low half and
// element 128 + j in its high half. Granules follow one another without gaps, so cutting the
// elements at a granule also cuts the codes at a byte. A scale of NaN means that the granule
// contained a NaN or an infinity.
constexpr int64_t granule_code_bytes(int64_t bits) {
  return static_cast<int64_t>(sizeof(float)) + kGranule * bits / 8;
}
// Returns the bytes of the codes of `numel` elements; numel is a multiple of kGranule.
constexpr int64_t code_bytes(int64_t numel, int64_t bits) {
  return numel / kGranule * granule_code_bytes(bits);
}
// Codes range from -largest_code to largest_code.
constexpr int64_t largest_code(int64_t bits) { return (int64_t{1} << (bits - 1)) - 1; }
// The smallest scale is the smallest normal number. Subnormal elements are encoded in units of it.
inline constexpr float kLeastScale = 0x1p-126f;

}  // namespace ds
