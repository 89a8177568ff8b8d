#pragma once
#include <cstdint>

#include "core/base/group_scalars.h"

namespace ds {

// The values that differ from step to step. Kernels read them from this block in memory at run
// time, so a compiled program never changes.
struct StepScalars {
  uint64_t seed = 0;
  // The number of steps before this one, including skipped steps.
  int64_t step = 0;
  // The number of optimizer updates before this step.
  int64_t updates = 0;
  // The scalars of parameter group 0. Updates of other groups are launched with their group's
  // scalars (RunScalars).
  GroupScalars group;
  // The mean of the losses of the leaves, weighted if leaves have weights, which instruction
  // `losses` writes.
  double loss = 0;
  // The number of leaves in the step, which `losses` writes.
  int64_t leaves = 0;
  // The divisor of gradient sums, without the loss scale: the number of leaves, or the sum of their
  // weights.
  double weight = 0;
  // The factor of the loss at the start of backward, and therefore of every gradient.
  double loss_scale = 1;
  // The factor by which updates multiply gradient sums: clip coefficient / (weight * loss_scale).
  double grad_scale = 1;
  // The norm of the mean gradient before clipping, without the loss scale.
  double grad_norm = 0;
  // 1 if update kernels do nothing, because the norm or the loss is not finite (if that is checked)
  // or because no leaf has a weight.
  int64_t skip = 0;
  // 1 if this rank has no data in this step. The results of its model are then zeros, and its
  // losses kNoLeaf.
  int64_t absent = 0;
  // 1 in training; 0 in evaluation, where dropout passes its input through.
  int64_t train = 1;
  // For an update with stochastic rounding, the index of the parameter that this launch updates.
  int64_t param = 0;
  // For an update with stochastic rounding, the index, within the parameter, of the first element
  // that this launch updates.
  int64_t element = 0;
};
// The scalars of one run of elements (ElementRun) that replace scalars of the step.
struct RunScalars {
  // The number of updates that these elements have missed, which is subtracted from
  // StepScalars::updates.
  int64_t missed = 0;
  // As in StepScalars.
  int64_t param = 0, element = 0;
  // The scalars of the elements' parameter group, which are read when the kernel runs, or null for
  // StepScalars::group.
  const GroupScalars* group = nullptr;
  bool any() const { return missed != 0 || param != 0 || element != 0 || group; }
};
// Returns the scalars of the step with the replacements of the run.
inline StepScalars scalars_of(const StepScalars& step, const RunScalars& run) {
  StepScalars own = step;
  own.updates -= run.missed;
  own.param = run.param;
  own.element = run.element;
  if (run.group) own.group = *run.group;
  return own;
}
// Returns the divisor of gradient sums, weight * loss_scale. A step of weight 0 skips its update,
// so its divisor only needs to be nonzero.
inline double divisor_of(const StepScalars& step) {
  return (step.weight > 0 ? step.weight : 1) * step.loss_scale;
}
// The loss of a leaf that does not exist, as the bits of an f32: a NaN that no computation
// produces.
inline constexpr uint32_t kNoLeaf = 0x7FC0D5AB;
static_assert(sizeof(StepScalars) <= 256);

}  // namespace ds
