#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

#include "ds.h"

namespace ds {

using DType = ds_dtype;

// Returns the size of one element in bytes. Throws for DS_DTYPE_NONE and for any value that is not
// an element type.
int64_t size_of(DType dtype);
// Returns the name that graph and program texts use: "f32", "bf16".
const char* dtype_name(DType dtype);
// Returns the type of that name. Throws DS_ERROR_INVALID_ARGUMENT, naming the known types, for any
// other name.
DType parse_dtype(std::string_view name);

// A brain float: the upper half of an f32. Conversion from f32 rounds to nearest, ties to even; NaN
// stays NaN. Conversions to and from f32 are always inlined: under sanitizers, calling them took a
// tenth of the training time.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  [[gnu::always_inline]] explicit bf16(float x) {
    uint32_t u = std::bit_cast<uint32_t>(x);
    // A NaN keeps its upper bits with the quiet bit set, since rounding could carry it to infinity.
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      // Adding 0x7fff plus the lowest kept bit carries exactly when rounding goes up; ties go to
      // even.
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  [[gnu::always_inline]] explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }
};
static_assert(sizeof(bf16) == 2);

// Converts IEEE 754 binary16 to f32. The code selects instead of branching, so that compilers
// vectorize loops over it. Widening is exact, even for subnormal numbers; NaN stays NaN.
constexpr float widen_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  // The exponent bias is 127 in f32 and 15 in f16: adding 112 converts a normal exponent, and
  // adding 224 turns 31 into 255.
  const uint32_t normal = (magnitude << 13) + (112u << 23),
                 special = (magnitude << 13) + (224u << 23);
  // A subnormal number is m * 2^-24. An f32 with exponent -14 and m as its top fraction bits is
  // (2^-14) + (m * 2^-24), so one subtraction leaves the value.
  const float tiny = std::bit_cast<float>((113u << 23) + (magnitude << 13)) - 0x1p-14f;
  const uint32_t finite = magnitude < 0x400u ? std::bit_cast<uint32_t>(tiny) : normal;
  return std::bit_cast<float>(sign | (magnitude < 0x7c00u ? finite : special));
}

// Converts f32 to f16. Rounds to nearest, ties to even. Magnitudes from 65520 on become infinity;
// NaN stays NaN.
constexpr uint16_t narrow_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  // Below 2^-14, results are multiples of 2^-24, which is the unit in the last place of an f32 near
  // 0.5: the addition rounds.
  const uint32_t small = magnitude < 0x38800000u ? magnitude : 0u;
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(small) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  const uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
  // Magnitudes from 65536 on are infinity; those from 65520 up to 65536 carry into infinity in
  // `normal`.
  const uint32_t special = magnitude > 0x7f800000u ? nan : 0x7c00u;
  return static_cast<uint16_t>(sign | (magnitude < 0x47800000u ? finite : special));
}

// The element type f16 of tensors.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  [[gnu::always_inline]] explicit f16(float x) : bits(narrow_half(x)) {}
  [[gnu::always_inline]] explicit operator float() const { return widen_half(bits); }
  explicit operator double() const { return static_cast<float>(*this); }
};
static_assert(sizeof(f16) == 2);

}  // namespace ds
