#pragma once
#include <cstddef>

namespace ds::text {

// A byte range [begin, end) of a text.
struct Range {
  size_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
};

}  // namespace ds::text
