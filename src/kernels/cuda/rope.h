#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

constexpr int kMostPairs = 256;
struct RopeArgs {
  Operand x, y;
  const int32_t* positions;  // null: row mod seq
  const int32_t* length;     // of the text; null: `turns` are what they are
  int64_t rows, width, seq, original;
  int32_t heads, depth, pairs, period, rotated, interleaved;
  int32_t only;  // 1: does nothing unless the text is longer than `original`, -1: if it is, 0:
                 // works anyway
  int32_t reserved;
  double magnitude;
  // Where `power` is not 0, theta is multiplied by (factor max(length, original) / original -
  // (factor - 1))^power.
  double factor, power;
  double turns[kMostPairs];  // of pair i, half turns from one position to the next
};

}  // namespace ds::cuda
