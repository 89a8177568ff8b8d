#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/base/element_run.h"

namespace ds {

// The wire format of gradients if a rank sends only the largest elements of each tensor: first
// their values (f32), then their positions in the bucket (i32), both in ascending order of
// position.

// The number of bytes sent per element.
inline constexpr int64_t kTopBytes = 8;

// Returns how many of the `numel` elements of a tensor are sent: ratio * numel, rounded up.
inline int64_t top_count(int64_t numel, double ratio) {
  return std::min(numel, static_cast<int64_t>(std::ceil(ratio * static_cast<double>(numel))));
}
inline int64_t top_count(std::span<const ElementRun> tensors, double ratio) {
  int64_t count = 0;
  for (const ElementRun& t : tensors) count += top_count(t.end - t.begin, ratio);
  return count;
}

}  // namespace ds
