#pragma once
#include <cstdint>

namespace ds {

// A range [begin, end) of elements, for an instruction that covers only some elements of its
// operands. In an update, all parameters of the range belong to scalar group `group` and were left
// out of `missed` earlier updates. In `lamb_ratios`, the range counts granules, and each group is
// one parameter.
struct ElementRun {
  int64_t begin = 0, end = 0, missed = 0, group = 0;
  // Set for updates that depend on the parameter: the whole range lies in parameter `param` and
  // begins at its element `element`. Stochastic rounding draws its bits from these two, so the bits
  // do not depend on the partition.
  int64_t param = 0, element = 0;
  // Whether a step that has no gradient of `param` leaves the range out (missing_gradients "skip").
  bool skips = false;
  bool operator==(const ElementRun&) const = default;
};

}  // namespace ds
