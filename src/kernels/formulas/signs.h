#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/round.h"
#include "core/program/signs.h"
#include "kernels/kernel.h"

namespace ds {

// Returns the scale of tensor `index` in a block (core/program/signs.h).
inline float load_scale(const uint8_t* block, int64_t index) {
  float scale;
  std::memcpy(&scale, block + index * int64_t{sizeof scale}, sizeof scale);
  return scale;
}

// Returns the scale of a tensor of `length` elements, the root of their mean square. `sums` holds
// the sum of squares of every kSignSum elements.
inline float scale_of_sums(const double* sums, int64_t length) {
  double sum = 0;
  for (int64_t k = 0; k < ceil_div(length, kSignSum); ++k) sum += sums[k];
  return length == 0 ? 0 : static_cast<float>(std::sqrt(sum / static_cast<double>(length)));
}

// Returns whether the step is skipped. If so, fills the last output (sums or codes) with zeros; the
// kernel then returns and leaves the error as it is.
inline bool skip_signs(const KernelContext& c) {
  if (c.scalars.skip == 0) return false;
  std::memset(c.out.back().data, 0, static_cast<size_t>(c.out.back().bytes()));
  return true;
}

}  // namespace ds
