#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The argument of quantize, dequantize and dequantize_sum. Granules have 256 elements; quantize
// uses one block of threads for each granule.
struct CodesArgs {
  // The elements to quantize, or the result of dequantize.
  Operand x;
  uint8_t* codes;
  // The error of the previous quantization, which is fed back. Null if errors are not fed back.
  float* error;
  const StepScalars* scalars;
  int64_t granules;
  // The error is cleared in every step that is a multiple of `reset`, or never if `reset` is 0.
  int64_t reset;
  // The new error is `keep` times the old error plus `take` times the loss of this quantization.
  float keep, take;
  int32_t bits;
  int32_t ranks;
};
constexpr uint32_t kCodeThreads = 256;

}  // namespace ds::cuda
