#pragma once
#include <array>
#include <cstddef>
#include <utility>

namespace ds {

// A sum by blocks of 256, then of the blocks' sums, and so on: an order that a device can follow in
// parallel. Each level holds the sum of its last, unfinished block.
class BlockedSum {
 public:
  static constexpr int kBlock = 256;
  // x: a term, or the sum of a block of the level below. Every lower level is empty then.
  void add(double x, size_t level = 0) {
    Level& l = levels_[level];
    l.sum += x;
    if (++l.count == kBlock) carry(level);
  }
  double finish() {
    size_t last = levels_.size() - 1;
    for (size_t level = 0; level < last; ++level) {
      if (levels_[level].count > 0) carry(level);
    }
    return levels_[last].sum;
  }

 private:
  struct Level {
    double sum = 0;
    int count = 0;
  };
  void carry(size_t level) {
    Level full = std::exchange(levels_[level], {});
    if (level + 1 < levels_.size()) return add(full.sum, level + 1);
    levels_[level].sum = full.sum;  // the highest, which no model fills
  }
  std::array<Level, 5> levels_;  // 2^40 granules
};

}  // namespace ds
