#pragma once
#include <array>
#include <cstddef>
#include <utility>

namespace ds {

// Adds terms in blocks of 256, then the sums of blocks in blocks of 256, and so on. A device can
// follow this order in parallel, and it needs memory for only one sum per level, the sum of the
// level's last, unfinished block.
class BlockedSum {
 public:
  static constexpr int kBlock = 256;
  // Adds a term. With a higher level, the term is the sum of a block of the level below, and all
  // lower levels must be empty.
  void add(double x, size_t level = 0) {
    Level& l = levels_[level];
    l.sum += x;
    if (++l.count == kBlock) carry(level);
  }
  // Carries the unfinished blocks up, lowest level first, and returns the sum.
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
    // The highest level keeps its sum. No model fills a block of that level.
    levels_[level].sum = full.sum;
  }
  // Five levels have room for 2^40 terms.
  std::array<Level, 5> levels_;
};

}  // namespace ds
