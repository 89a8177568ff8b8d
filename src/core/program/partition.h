#pragma once
#include <cstdint>
#include <vector>

namespace ds {

// How a sequence is cut into contiguous parts, as DeepSpeed does it (deepspeed.md 4.8). Results are
// parts + 1 boundaries: part p is [b[p], b[p + 1]). Throw DS_ERROR_INVALID_ARGUMENT for fewer than
// 0 items or 1 part.

// Parts of equal size, the first items % parts of them one longer; with fewer items than parts, one
// each.
std::vector<int64_t> partition_uniform(int64_t items, int64_t parts);

// Parts whose sums of weights differ little, by the recurrence that keeps for every (items, parts)
// the cut with the least difference of largest and smallest sum so far, of equals the last one. Not
// always the optimum. With no more items than parts, partition_uniform. O(items^2 parts).
std::vector<int64_t> partition_balanced(const std::vector<double>& weights, int64_t parts);

// s[i] = w[0] + ... + w[i].
std::vector<double> prefix_sum_inc(const std::vector<double>& weights);

}  // namespace ds
