#pragma once
#include <cstdint>

#include "core/base/group_scalars.h"

namespace ds {

// Values of a step that kernels read at run time: one block, so that a compiled
// program never changes.
struct StepScalars {
  uint64_t seed = 0;
  int64_t step = 0;     // steps made before this one, skipped ones included
  int64_t updates = 0;  // optimizer updates taken before this one
  GroupScalars group;   // of group 0; an update of another one is launched with its own
  double loss = 0;      // mean over all leaves of the step; written by `losses`
  int64_t leaves = 0;   // that there are in the step; written by `losses`
  double weight =
      0;  // that gradient sums are divided by: leaves, or the sum of what they count for
  double loss_scale = 1;  // multiplies the loss where backward begins, and with it every gradient
  double grad_scale =
      1;  // clip coefficient / (weight * loss_scale): multiplies gradient sums once, in update
  double grad_norm = 0;  // before clipping, of the mean gradient, which no loss scale multiplies
  int64_t skip = 0;      // 1: update kernels do nothing (overflow)
  int64_t absent = 0;    // 1: this rank has no data; what its model would compute
                         // is zero, its losses kNoLeaf
  int64_t train = 1;     // 0: dropout passes its input through
  int64_t param = 0;     // of a run of an update that rounds by draws: its parameter,
  int64_t element = 0;   // and which of its elements is the first
};
// What a run of an update has of its own.
struct RunScalars {
  int64_t missed = 0;  // updates that these elements did not have: theirs is an earlier one
  int64_t param = 0, element = 0;  // see StepScalars
  const GroupScalars* group =
      nullptr;  // of these elements; null: that of the step. As it is when it runs
  bool any() const { return missed != 0 || param != 0 || element != 0 || group; }
};
inline StepScalars scalars_of(const StepScalars& step, const RunScalars& run) {
  StepScalars own = step;
  own.updates -= run.missed;
  own.param = run.param;
  own.element = run.element;
  if (run.group) own.group = *run.group;
  return own;
}
// Of a step without any weight nothing is divided: its update is skipped.
inline double divisor_of(const StepScalars& step) {
  return (step.weight > 0 ? step.weight : 1) * step.loss_scale;
}
// The loss of a leaf that is not there: a NaN of its own, as bits of an f32.
inline constexpr uint32_t kNoLeaf = 0x7FC0D5AB;
static_assert(sizeof(StepScalars) <= 256);

}  // namespace ds
