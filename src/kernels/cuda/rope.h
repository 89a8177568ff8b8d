#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The largest number of pairs of a head.
constexpr int kMostPairs = 256;
// The argument of `rope`, which applies rotary positions to the heads of rows of `width` elements.
struct RopeArgs {
  Operand x, y;
  // [rows]: the position of each row. Null if row r is at position r mod seq.
  const int32_t* positions;
  // The length of the text. Null if the angles do not depend on the length.
  const int32_t* length;
  int64_t rows, width, seq, original;
  int32_t heads, depth, pairs, period, rotated, interleaved;
  // Models that use other angles for long texts need two launches. With 1, this launch does its
  // work only if the text is longer than `original`; with -1, only if the text is not longer; with
  // 0, always.
  int32_t only;
  int32_t reserved;
  double magnitude;
  // If `power` is not 0, theta is multiplied by (factor max(length, original) / original - (factor
  // - 1))^power.
  double factor, power;
  // turns[i] is the rotation of pair i from one position to the next, in half turns.
  double turns[kMostPairs];
};

}  // namespace ds::cuda
