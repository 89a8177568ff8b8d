#pragma once
#include <cstdint>

#include "core/config/config.h"

namespace ds {

// The state of a loss scale between two steps. Checkpoints store it.
struct LossScaler {
  // The scale of the next step.
  double scale = 1;
  // The number of steps so far, including those that overflowed.
  int64_t steps = 0;
  // The index of the last step that overflowed, or -1 if no step has.
  int64_t last_overflow = -1;
  // The number of overflows until the scale halves, including the one that halves it.
  int64_t hysteresis = 0;
  bool operator==(const LossScaler&) const = default;
};

// Returns the state before the first step.
LossScaler first_scaler(const LossScaleConfig& config);

// Returns the state that follows `scaler` after a step. `overflow` says whether the step's
// gradients had infinity or NaN.
LossScaler next_scaler(const LossScaleConfig& config, const LossScaler& scaler, bool overflow);

// Returns whether a dynamic scale is at its minimum, so that an overflow of the next step could not
// lower it. A scale that began below the minimum does not count.
bool at_floor(const LossScaleConfig& config, const LossScaler& scaler);

// Returns whether the loss scale is dynamic. Overflows are then a normal part of a run, because the
// scale finds its limit by them.
bool searches_scale(const Config& config);

// Limits the initial value of a dynamic scale to 2^10. Callers that measure or judge single steps
// use it, so that the search for the scale does not skip any of them.
void settle_scale(LossScaleConfig& config);

}  // namespace ds
