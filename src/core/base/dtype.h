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

// Brain float: the upper half of an f32. Conversion from f32 rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float x) {
    uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  explicit operator double() const { return static_cast<float>(*this); }
};
static_assert(sizeof(bf16) == 2);

}  // namespace ds
