#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

#include "ds.h"

namespace ds {

using DType = ds_dtype;

int64_t size_of(DType dtype);              // bytes of one element; throws on NONE
const char* dtype_name(DType dtype);       // "f32", "bf16", ... as in graph and program text
DType parse_dtype(std::string_view name);  // throws, naming the known ones

// Brain float: the upper half of an f32. Conversion from f32 rounds to nearest, ties to even; NaN
// stays NaN. Conversions are inlined under sanitizers, too, where calls of them were a tenth of
// training.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  [[gnu::always_inline]] explicit bf16(float x) {
    uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  [[gnu::always_inline]] explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }
};
static_assert(sizeof(bf16) == 2);

// IEEE 754 binary16 to and from f32, without branches, so that compilers make vectors of loops over
// them. Widening is exact, subnormal numbers included; NaN stays NaN.
constexpr float widen_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23),
                 special = (magnitude << 13) + (224u << 23);
  // A subnormal number is m 2^-24: what stands behind the leading 1 of an f32 of exponent -14.
  const float tiny = std::bit_cast<float>((113u << 23) + (magnitude << 13)) - 0x1p-14f;
  const uint32_t finite = magnitude < 0x400u ? std::bit_cast<uint32_t>(tiny) : normal;
  return std::bit_cast<float>(sign | (magnitude < 0x7c00u ? finite : special));
}

// Narrowing rounds to nearest, ties to even, and gives infinity from 65520 on.
constexpr uint16_t narrow_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the results are multiples of 2^-24, which are the last bits of an f32 near 0.5.
  const uint32_t small = magnitude < 0x38800000u ? magnitude : 0u;
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(small) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  const uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
  const uint32_t special = magnitude > 0x7f800000u ? nan : 0x7c00u;  // from 65536 on
  return static_cast<uint16_t>(sign | (magnitude < 0x47800000u ? finite : special));
}

// The type of these bits.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  [[gnu::always_inline]] explicit f16(float x) : bits(narrow_half(x)) {}
  [[gnu::always_inline]] explicit operator float() const { return widen_half(bits); }
  explicit operator double() const { return static_cast<float>(*this); }
};
static_assert(sizeof(f16) == 2);

}  // namespace ds
