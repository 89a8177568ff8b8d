#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "core/base/attrs.h"
#include "core/base/error.h"

namespace ds {

// Where what rank r has given lies, if the parts of all ranks were gathered level by level, the outermost
// first (core/program/levels.h, RankLevels::part). Attribute `levels`, "4x2": ranks of each level, innermost
// first; without it all ranks are one level. Takes no memory.
class RankOrder {
 public:
  explicit RankOrder(const Attrs& attrs) {
    std::string_view text = attrs.text_or("levels", "");
    while (!text.empty()) {
      ensure(count_ < kMost, "levels {} are more than {}", attrs.text("levels"), kMost);
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sizes_[count_++]);
      ensure(error == std::errc{}, "levels must be numbers with x in between, got {}", attrs.text("levels"));
      text.remove_prefix(std::min(text.size(), static_cast<size_t>(end - text.data()) + 1));
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
