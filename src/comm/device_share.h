#pragma once
#include <algorithm>
#include <cstdint>

#include "core/base/round.h"

namespace ds {

// The elements [begin, end) that a rank adds up in an all_reduce done by devices. Shares are
// multiples of 64 elements, so that devices load whole vectors; the last ones may be smaller or
// empty.
struct DeviceShare {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};
// Returns the share of `rank` of an all_reduce of `count` elements over `ranks` ranks.
inline DeviceShare share_of(int64_t count, int64_t ranks, int64_t rank) {
  constexpr int64_t kVector = 64;
  const int64_t each = round_up(ceil_div(count, ranks), kVector);
  return {std::min(count, each * rank), std::min(count, each * (rank + 1))};
}

}  // namespace ds
