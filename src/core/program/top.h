#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/base/element_run.h"

namespace ds {

// The wire format of gradients of which a rank sends the largest elements: their values (f32),
// tensor behind tensor, then where in the bucket they lie (i32), both in ascending order of place.
inline constexpr int64_t kTopBytes = 8;  // an element

// Elements that are sent of a tensor: the ratio of them, rounded up.
inline int64_t top_count(int64_t numel, double ratio) {
  return std::min(numel, static_cast<int64_t>(std::ceil(ratio * static_cast<double>(numel))));
}
inline int64_t top_count(std::span<const ElementRun> tensors, double ratio) {
  int64_t count = 0;
  for (const ElementRun& t : tensors) count += top_count(t.end - t.begin, ratio);
  return count;
}

}  // namespace ds
