#include "core/base/half.h"

#include <bit>
#include <cstring>

#include "core/base/error.h"

namespace ds {
namespace {

void check(DType dtype) {
  ensure(dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F16,
         "type {} has no conversion to or from f32", dtype_name(dtype));
}

float widen_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace

float widen_half(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  float value = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal: exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

uint16_t narrow_half(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and more
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the results are multiples of 2^-24, which are the last bits of an f32 near 0.5.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  uint32_t rounded = magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

void widen(DType dtype, const std::byte* data, int64_t count, float* out) {
  check(dtype);
  if (dtype == DS_DTYPE_F32) {
    std::memcpy(out, data, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, data + 2 * i, 2);
    out[i] = dtype == DS_DTYPE_F16 ? widen_half(bits) : widen_bf16(bits);
  }
}

void narrow(DType dtype, const float* values, int64_t count, std::byte* out) {
  check(dtype);
  if (dtype == DS_DTYPE_F32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = dtype == DS_DTYPE_F16 ? narrow_half(values[i]) : bf16(values[i]).bits;
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

}  // namespace ds
