#pragma once
#include <vector>

#include "text/tokenizers/range.h"
#include "text/tokenizers/traced_text.h"

namespace ds::text {

// A text cut into ranges in order, none of them empty. Bytes between ranges are dropped.
struct Pieces : TracedText {
  std::vector<Range> ranges;
};

// Appends [begin, end) unless it is empty.
inline void append_range(std::vector<Range>& ranges, size_t begin, size_t end) {
  if (begin < end) ranges.push_back({begin, end});
}

}  // namespace ds::text
