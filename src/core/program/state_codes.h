#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/program/granules.h"

namespace ds {

// States of an optimizer in 8 bits (docs/adr/0040): a code for each element, and for each block of
// 256 elements, which is a granule, a scale of one byte.
//
// A code is a small float: exponent and three bits of mantissa, below the sign where there is one.
// The scale is the biased exponent of the block's largest element, and codes count from it
// downwards: 16 octaves with a sign, 32 without. So a code is the top of an f32's bits but for an
// offset that the block has, and code 0 is zero. What codes say is exact in f32, and to encode it
// again, with the same scale or a smaller one, changes nothing. That is why checkpoints may hold
// f32.
inline constexpr int64_t kStateBlock = kGranule;
static_assert(kStateBlock == 256);

enum class StateCodes : int8_t {
  with_sign = 0,  // of means: what is below the lowest octave is zero
  squares         // of what is never negative and is divided by: what is not zero has no code 0
};

// Of the states of an optimizer, in its order: a mean, then a mean of squares.
constexpr StateCodes codes_of_state(size_t state) {
  return state == 0 ? StateCodes::with_sign : StateCodes::squares;
}

struct StateScale {
  int32_t offset;  // of codes: the top 11 bits of |x| that code 0 would have
  int32_t top;     // the largest code

  // `scale`: a byte of the block.
  constexpr StateScale(StateCodes codes, uint8_t scale)
      : offset(8 * (std::max<int32_t>(scale, least(codes)) + 1) - count(codes)),
        top(count(codes) - 1) {}

  static constexpr int32_t count(StateCodes codes) {
    return codes == StateCodes::squares ? 256 : 128;
  }
  // Below it the lowest octave would have no normal numbers.
  static constexpr int32_t least(StateCodes codes) {
    return codes == StateCodes::squares ? 32 : 16;
  }
};

inline constexpr int kStateShift = 20;            // bits of an f32 below those that a code has
inline constexpr uint32_t kToNearest = 1u << 19;  // added below a code's last bit
inline constexpr uint32_t kInfinityBits = 0x7f800000u;  // of f32

// The scale of a block whose largest |x| has these bits. What would be rounded to the next octave
// has it for scale; 255 is that of a block with an infinity or a NaN.
constexpr uint8_t state_scale(uint32_t largest) {
  if (largest >= kInfinityBits) return 255;
  return static_cast<uint8_t>(std::min((largest + 0xfffffu) >> 23, 254u));
}

// `drawn`: 20 bits, or kToNearest.
constexpr uint8_t encode_state(float x, StateCodes codes, const StateScale& scale, uint32_t drawn) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), size = bits & 0x7fffffffu;
  int32_t code = static_cast<int32_t>((size + drawn) >> kStateShift) - scale.offset;
  const int32_t low = codes == StateCodes::squares && size != 0 ? 1 : 0;
  code = std::min(std::max(code, low), scale.top);
  if (codes == StateCodes::with_sign) code |= static_cast<int32_t>(bits >> 31) << 7;
  return static_cast<uint8_t>(code);
}

// A whole block, to nearest.
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
