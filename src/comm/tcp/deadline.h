#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ds {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Returns a waiting time of `ms` milliseconds, but at most some 30 years, so that no deadline
// overflows.
inline std::chrono::milliseconds patience_of(int64_t ms) {
  return std::chrono::milliseconds(std::clamp<int64_t>(ms, 0, int64_t{1} << 40));
}

}  // namespace ds
