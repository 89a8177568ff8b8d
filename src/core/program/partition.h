#pragma once
#include <cstdint>
#include <vector>

namespace ds {

// Cuts of a sequence into contiguous parts, as DeepSpeed computes them. Results are parts + 1
// boundaries: part p is [b[p], b[p + 1]). The functions throw DS_ERROR_INVALID_ARGUMENT for fewer
// than 0 items or fewer than 1 part.

// Returns parts of items / parts items each, rounded down; the first items % parts parts have one
// more.
std::vector<int64_t> partition_uniform(int64_t items, int64_t parts);

// Returns parts whose sums of weights differ little. The recurrence keeps, for every number of
// items and of parts, the cut with the least difference between the largest and the smallest sum,
// and of equal cuts the one whose last part begins latest. The result is not always optimal. With
// at most as many items as parts, it is that of partition_uniform(). The cost is O(items^2 parts).
std::vector<int64_t> partition_balanced(const std::vector<double>& weights, int64_t parts);

// Returns the inclusive prefix sums: s[i] = w[0] + ... + w[i].
std::vector<double> prefix_sum_inc(const std::vector<double>& weights);

}  // namespace ds
