#pragma once
#include <algorithm>
#include <iterator>

namespace ds {

// Returns whether an element of a range equals `value`.
template <typename Range, typename Value>
bool contains(const Range& range, const Value& value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

}  // namespace ds
