#pragma once
// Functions for routers: the choice of the k largest elements of a row, and the logarithm of its
// sum of exponentials. Rows are short, so counting the larger elements is simpler than sorting.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {

// Returns whether element e is among the k largest of a row. Of equal elements, the one with the
// lower index ranks higher, so that exactly k are chosen.
template <typename T>
bool among_largest(const T* row, int64_t columns, int64_t e, int64_t k) {
  int64_t larger = 0;
  for (int64_t j = 0; j < columns; ++j) {
    larger += get(row, j) > get(row, e) || (get(row, j) == get(row, e) && j < e);
  }
  return larger < k;
}

// Returns the largest element of a row.
template <typename T>
Wide<T> largest(const T* row, int64_t columns) {
  Wide<T> top = get(row, 0);
  for (int64_t e = 1; e < columns; ++e) top = std::max(top, get(row, e));
  return top;
}

// Returns the logarithm of the sum of exp(row[e]): softmax(row)[e] is exp(row[e] -
// softmax_base(row)).
template <typename T>
Wide<T> softmax_base(const T* row, int64_t columns) {
  Wide<T> top = largest(row, columns), sum = 0;
  for (int64_t e = 0; e < columns; ++e) sum += std::exp(get(row, e) - top);
  return top + std::log(sum);
}

}  // namespace ds::ref
