#include "core/program/partition.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check(int64_t items, int64_t parts) {
  if (items < 0 || parts < 1) {
    raise(DS_ERROR_INVALID_ARGUMENT, "a partition needs items >= 0 and parts >= 1, got {} and {}",
          items, parts);
  }
}

// The best cut found for some number of first items and of parts.
struct Cut {
  double largest = 0, smallest = kInfinity;
  double spread = kInfinity;
  // The first item of the last part.
  int64_t last = 0;
};

}  // namespace

std::vector<int64_t> partition_uniform(int64_t items, int64_t parts) {
  check(items, parts);
  std::vector<int64_t> bounds;
  int64_t size = items / parts, longer = items % parts;
  for (int64_t p = 0; p <= parts; ++p) bounds.push_back(p * size + std::min(p, longer));
  return bounds;
}

std::vector<double> prefix_sum_inc(const std::vector<double>& weights) {
  std::vector<double> sums;
  double sum = 0;
  for (double weight : weights) sums.push_back(sum += weight);
  return sums;
}

std::vector<int64_t> partition_balanced(const std::vector<double>& weights, int64_t parts) {
  auto items = static_cast<int64_t>(weights.size());
  check(items, parts);
  if (items <= parts) return partition_uniform(items, parts);
  std::vector<double> before = prefix_sum_inc(weights);
  before.insert(before.begin(), 0.0);
  std::vector<std::vector<Cut>> best(static_cast<size_t>(items) + 1,
                                     std::vector<Cut>(static_cast<size_t>(parts) + 1));
  // best[end][count] cuts the first `end` items into `count` parts. The recurrence extends only the
  // best cut of fewer items, which need not lead to the best cut of all items. DeepSpeed uses the
  // same recurrence, so both cut models at the same places.
  best[0][0].spread = 0;
  for (size_t end = 1; end <= weights.size(); ++end) {
    for (size_t count = 1; count <= std::min<size_t>(end, static_cast<size_t>(parts)); ++count) {
      Cut& cut = best[end][count];
      for (size_t begin = 0; begin < end; ++begin) {
        const Cut& front = best[begin][count - 1];
        if (front.spread == kInfinity) continue;
        double sum = before[end] - before[begin];
        double largest = std::max(front.largest, sum), smallest = std::min(front.smallest, sum);
        // Among cuts of equal spread, the one whose last part starts latest is kept.
        if (largest - smallest > cut.spread) continue;
        cut = {largest, smallest, largest - smallest, static_cast<int64_t>(begin)};
      }
    }
  }
  std::vector<int64_t> bounds(static_cast<size_t>(parts) + 1, items);
  for (size_t p = static_cast<size_t>(parts); p > 0; --p) {
    bounds[p - 1] = best[static_cast<size_t>(bounds[p])][p].last;
  }
  return bounds;
}

}  // namespace ds
