#pragma once
#include <cstdint>

#include "core/program/granules.h"

namespace ds {

// Quantized elements: of every granule an f32 scale, then its elements as signed integers of `bits`
// (8 or 4) in units of the scale; with 4, byte j holds element j in its low half and element 128 +
// j in its high half. Granules lie one behind the other, so that whatever cuts elements at granules
// cuts their codes, too. A granule whose scale is NaN held a NaN or an infinity.
constexpr int64_t granule_code_bytes(int64_t bits) {
  return static_cast<int64_t>(sizeof(float)) + kGranule * bits / 8;
}
// Bytes of the codes of `numel` elements, a multiple of kGranule.
constexpr int64_t code_bytes(int64_t numel, int64_t bits) {
  return numel / kGranule * granule_code_bytes(bits);
}
// Codes are -largest_code to largest_code.
constexpr int64_t largest_code(int64_t bits) { return (int64_t{1} << (bits - 1)) - 1; }
// Scales are at least the least normal number: codes of subnormal elements are those of that scale.
inline constexpr float kLeastScale = 0x1p-126f;

}  // namespace ds
