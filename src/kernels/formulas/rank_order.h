#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/error.h"

namespace ds {

// The order of the ranks' parts after they were gathered level by level, outermost level first
// (core/program/levels.h, RankLevels::part). Attribute `levels`, for example [4,2], lists the
// number of ranks per level, innermost first. Without it all ranks form one level. The class
// allocates no memory.
class RankOrder {
 public:
  explicit RankOrder(const Attrs& attrs) {
    if (!attrs.has("levels")) return;
    for (int64_t size : attrs.integers("levels")) {
      ensure(count_ < kMost, "attributes '{}' have more than {} levels", attrs.print(), kMost);
      sizes_[count_++] = size;
    }
  }

  // Returns the index of the part of `rank`: writes the rank as digits in the mixed radix of the
  // levels and reads the digits in reverse.
  int64_t place(int64_t rank) const {
    int64_t place = count_ == 0 ? rank : 0;
    for (int level = 0; level < count_; ++level) {
      place = place * sizes_[level] + rank % sizes_[level];
      rank /= sizes_[level];
    }
    return place;
  }

 private:
  static constexpr int kMost = 8;
  int64_t sizes_[kMost] = {};
  int count_ = 0;
};

}  // namespace ds
