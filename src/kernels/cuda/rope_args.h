#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

constexpr int kMostPairs = 256;
struct RopeArgs {
  Operand x, y;
  const int32_t* positions;  // null: row mod seq
  int64_t rows, width, seq;
  int32_t heads, depth, pairs, period, rotated, interleaved;
  double magnitude;
  double turns[kMostPairs];  // of pair i, half turns from one position to the next
};

}  // namespace ds::cuda
