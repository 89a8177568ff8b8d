#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// Of quantize, dequantize and dequantize_sum: granules of 256 elements, a block each.
struct CodesArgs {
  Operand x;  // or what codes are decoded to
  uint8_t* codes;
  float* error;  // null: none
  const StepScalars* scalars;
  int64_t granules;
  int64_t reset;
  float keep, take;  // shares of the error
  int32_t bits;
  int32_t ranks;
};
constexpr uint32_t kCodeThreads = 256;

}  // namespace ds::cuda
