#pragma once
#include <cstdint>

namespace ds {

// Elements [begin, end) of the operands of an instruction that does not take all of them, in this
// order. Of an update: their parameters were not updated in `missed` updates of the run, and are of
// this group. Of `lamb_ratios`: runs of one group are of one parameter.
struct ElementRun {
  int64_t begin = 0, end = 0, missed = 0, group = 0;
  // Of an update that rounds by draws: all of the run is of this parameter, from its element
  // `element` on.
  int64_t param = 0, element = 0;
  bool operator==(const ElementRun&) const = default;
};

}  // namespace ds
