#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The argument of every kernel of elementwise.cu and activation.cu. A kernel reads only the fields
// that its operation needs; its comment explains those that are not obvious.
struct ElementArgs {
  Operand in[3], out[2];
  // The number of elements.
  int64_t count;
  // For operands that have rows, the number of elements in a row, and the distance between rows in
  // elements.
  int64_t width, stride;
  const StepScalars* scalars;
  int64_t leaf;
  // Constants of the operation. `real` is in f64; a, b and c are computed in f64 on the host and
  // rounded once.
  double real;
  float a, b, c;
  // Identifies the operation in random streams.
  uint32_t op;
  // An integer of the operation, for example an Act or a switch.
  int32_t flag;
  // 1 if all addresses allow 16-byte accesses.
  int32_t wide;
  int64_t reserved;
};

// The number of elements per thread, and of threads per block.
constexpr int64_t kShare = 8;
constexpr uint32_t kThreads = 256;

}  // namespace ds::cuda
