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

void widen(DType dtype, const std::byte* data, int64_t count, float* out) {
  check(dtype);
  if (dtype == DS_DTYPE_F32) {
    std::memcpy(out, data, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  // Data may be unaligned, so elements are copied one by one.
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
