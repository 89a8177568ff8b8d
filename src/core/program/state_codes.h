#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/program/granules.h"

namespace ds {

// Optimizer states in 8 bits (docs/adr/0040): a code per element, and a scale of one byte per block
// of 256 elements, which is a granule.
//
// A code is a small float: an exponent and three bits of mantissa, below a sign bit if the kind has
// one. The scale is the biased exponent of the block's largest element, and codes count downwards
// from it, over 16 octaves with a sign and 32 without. So a code is the top of an f32's bits minus
// an offset of the block, and code 0 is zero. Decoding is exact in f32, and encoding the result
// again, with the same scale or a smaller one, changes nothing. That is why checkpoints may hold
// f32.
inline constexpr int64_t kStateBlock = kGranule;
static_assert(kStateBlock == 256);

enum class StateCodes : int8_t {
  // Codes of means. Values below the lowest octave become zero.
  with_sign = 0,
  // Codes of means of squares, which are never negative and serve as divisors. Only zero gets code
  // 0.
  squares
};

// Returns the kind of codes of an optimizer's state by its index. State 0 is a mean, later states
// are means of squares.
constexpr StateCodes codes_of_state(size_t state) {
  return state == 0 ? StateCodes::with_sign : StateCodes::squares;
}

// The relation between the codes of a block and the bits of f32 numbers.
struct StateScale {
  // The value of the top 11 bits of |x| that corresponds to code 0.
  int32_t offset;
  // The largest code.
  int32_t top;

  // `scale` is the scale byte of the block.
  constexpr StateScale(StateCodes codes, uint8_t scale)
      : offset(8 * (std::max<int32_t>(scale, least(codes)) + 1) - count(codes)),
        top(count(codes) - 1) {}

  static constexpr int32_t count(StateCodes codes) {
    return codes == StateCodes::squares ? 256 : 128;
  }
  // Below this scale, the lowest octave would have no normal numbers.
  static constexpr int32_t least(StateCodes codes) {
    return codes == StateCodes::squares ? 32 : 16;
  }
};

// The number of low bits of an f32 that a code drops.
inline constexpr int kStateShift = 20;
// Half of a code's unit in the last place. Adding it before the shift rounds to nearest.
inline constexpr uint32_t kToNearest = 1u << 19;
// The bits of f32 infinity.
inline constexpr uint32_t kInfinityBits = 0x7f800000u;

// Returns the scale of a block, where `largest` holds the bits of the largest |x|. A value that
// rounds up to the next octave gets the scale of that octave. The scale 255 marks a block with an
// infinity or a NaN.
constexpr uint8_t state_scale(uint32_t largest) {
  if (largest >= kInfinityBits) return 255;
  return static_cast<uint8_t>(std::min((largest + 0xfffffu) >> 23, 254u));
}

// Returns the code of x. `drawn` holds 20 random bits for stochastic rounding, or is kToNearest.
constexpr uint8_t encode_state(float x, StateCodes codes, const StateScale& scale, uint32_t drawn) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), size = bits & 0x7fffffffu;
  int32_t code = static_cast<int32_t>((size + drawn) >> kStateShift) - scale.offset;
  const int32_t low = codes == StateCodes::squares && size != 0 ? 1 : 0;
  code = std::min(std::max(code, low), scale.top);
  if (codes == StateCodes::with_sign) code |= static_cast<int32_t>(bits >> 31) << 7;
  return static_cast<uint8_t>(code);
}

// Encodes a whole block, rounding to nearest.
inline void encode_block(std::span<const float, kStateBlock> in, StateCodes codes, uint8_t* out,
                         uint8_t& scale) {
  uint32_t largest = 0;
  for (float x : in) largest = std::max(largest, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  scale = state_scale(largest);
  const StateScale s(codes, scale);
  for (size_t e = 0; e < in.size(); ++e) out[e] = encode_state(in[e], codes, s, kToNearest);
}

constexpr float decode_state(uint8_t code, StateCodes codes, const StateScale& scale) {
  const int32_t size = code & scale.top;
  if (size == 0) return 0;
  uint32_t bits = static_cast<uint32_t>(size + scale.offset) << kStateShift;
  if (codes == StateCodes::with_sign) bits |= static_cast<uint32_t>(code >> 7) << 31;
  return std::bit_cast<float>(bits);
}

}  // namespace ds
