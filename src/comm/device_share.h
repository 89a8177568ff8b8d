#pragma once
#include <algorithm>
#include <cstdint>

#include "core/base/round.h"

namespace ds {

// Elements [begin, end) that a rank adds up in an all_reduce which devices make: whole vectors of
// their loads. The last shares may be smaller, and empty.
struct DeviceShare {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};
inline DeviceShare share_of(int64_t count, int64_t ranks, int64_t rank) {
  constexpr int64_t kVector = 64;
  const int64_t each = round_up(ceil_div(count, ranks), kVector);
  return {std::min(count, each * rank), std::min(count, each * (rank + 1))};
}

}  // namespace ds
