#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace ds::test {

// Adds the values of all ranks in the order of a reduction: neighbours pairwise, level by level.
// The last one of an odd number is carried to the next level.
inline std::vector<float> sum_of_neighbours(std::vector<std::vector<float>> parts) {
  while (parts.size() > 1) {
    std::vector<std::vector<float>> sums;
    for (size_t r = 0; r < parts.size(); r += 2) {
      sums.push_back(parts[r]);
      for (size_t e = 0; r + 1 < parts.size() && e < sums.back().size(); ++e)
        sums.back()[e] += parts[r + 1][e];
    }
    parts = std::move(sums);
  }
  return parts[0];
}

}  // namespace ds::test
