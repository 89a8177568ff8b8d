#pragma once
#include <string>
#include <vector>

#include "data/tokenizers/regex.h"

namespace ds {

// A text cut into ranges that follow one another; bytes between ranges are dropped. No range is empty.
struct Pieces {
  std::string text;
  std::vector<Range> ranges;
};

// Appends non-empty [begin, end).
inline void append_range(std::vector<Range>& ranges, size_t begin, size_t end) {
  if (begin < end) ranges.push_back({begin, end});
}

}  // namespace ds
