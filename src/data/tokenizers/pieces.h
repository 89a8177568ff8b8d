#pragma once
#include <vector>

#include "data/tokenizers/range.h"
#include "data/tokenizers/traced_text.h"

namespace ds {

// A text cut into ranges that follow one another; bytes between ranges are dropped. No range is
// empty.
struct Pieces : TracedText {
  std::vector<Range> ranges;
};

// Appends non-empty [begin, end).
inline void append_range(std::vector<Range>& ranges, size_t begin, size_t end) {
  if (begin < end) ranges.push_back({begin, end});
}

}  // namespace ds
