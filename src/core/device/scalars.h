#pragma once
#include <cstdint>

#include "core/base/group_scalars.h"

namespace ds {

// Values of a step that kernels read at run time: one block, so that a compiled
// program never changes.
struct StepScalars {
  uint64_t seed = 0;
  int64_t step = 0;       // steps made before this one, skipped ones included
  int64_t updates = 0;    // optimizer updates taken before this one
  GroupScalars group;     // of group 0; an update of another one is launched with its own
  double loss = 0;        // mean over all leaves of the step; written by `losses`
  int64_t leaves = 0;     // that there are in the step; written by `losses`
  double loss_scale = 1;  // multiplies the loss where backward begins, and with it every gradient
  double grad_scale =
      1;                 // clip coefficient / (leaves * loss_scale): multiplies gradient sums once, in update
  double grad_norm = 0;  // before clipping, of the mean gradient, which no loss scale multiplies
  int64_t skip = 0;      // 1: update kernels do nothing (overflow)
  int64_t absent = 0;    // 1: this rank has no data; what its model would compute
                         // is zero, its losses kNoLeaf
  int64_t train = 1;     // 0: dropout passes its input through
};
// Those of elements that missed so many updates, of a group; null: the group of `step`.
inline StepScalars scalars_of(const StepScalars& step, int64_t missed, const GroupScalars* group) {
  StepScalars own = step;
  own.updates -= missed;
  if (group) own.group = *group;
  return own;
}
// The loss of a leaf that is not there: a NaN of its own, as bits of an f32.
inline constexpr uint32_t kNoLeaf = 0x7FC0D5AB;
static_assert(sizeof(StepScalars) <= 256);

}  // namespace ds
