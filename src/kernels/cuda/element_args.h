#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The argument of every kernel of elementwise.cu and activation.cu. The comment of a kernel says
// which fields it reads.
struct ElementArgs {
  Operand in[3], out[2];
  int64_t count;  // elements
  // For operands with rows: the elements of a row, and the elements from one row to the next.
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
  // 1: all addresses allow 16-byte accesses.
  int32_t wide;
  int64_t reserved;
};

// Elements per thread, and threads per block.
constexpr int64_t kShare = 8;
constexpr uint32_t kThreads = 256;

}  // namespace ds::cuda
