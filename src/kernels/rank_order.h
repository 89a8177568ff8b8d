#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/error.h"

namespace ds {

// Where what rank r has given lies, if the parts of all ranks were gathered level by level, the
// outermost first (core/program/levels.h, RankLevels::part). Attribute `levels`, [4,2]: ranks of
// each level, innermost first; without it all ranks are one level. Takes no memory.
class RankOrder {
 public:
  explicit RankOrder(const Attrs& attrs) {
    if (!attrs.has("levels")) return;
    for (int64_t size : attrs.integers("levels")) {
      ensure(count_ < kMost, "levels {} are more than {}", attrs.print(), kMost);
      sizes_[count_++] = size;
    }
  }

  // The number of the rank, its digits read the other way round.
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
