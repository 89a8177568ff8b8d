#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// Of every entry of elementwise.cu and activation.cu; each says what it reads.
struct ElementArgs {
  Operand in[3], out[2];
  int64_t count;          // elements
  int64_t width, stride;  // of a row, and between rows, where operands have rows
  const StepScalars* scalars;
  int64_t leaf;
  double real;    // a constant in f64
  float a, b, c;  // constants, rounded once
  uint32_t op;    // of a random stream
  int32_t flag;
  int32_t wide;  // addresses allow 16-byte loads
  int64_t reserved;
};

// All elements of one thread's share, and threads of a block.
constexpr int64_t kShare = 8;
constexpr uint32_t kThreads = 256;

}  // namespace ds::cuda
