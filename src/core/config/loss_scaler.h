#pragma once
#include <cstdint>

#include "core/config/config.h"

namespace ds {

// What a loss scale is between two steps. It is state of a run: checkpoints have it.
struct LossScaler {
  double scale = 1;            // of the next step
  int64_t steps = 0;           // steps that it has followed, overflows included
  int64_t last_overflow = -1;  // number of the last one that overflowed; -1: none
  int64_t hysteresis = 0;      // overflows until it falls, this one included
  bool operator==(const LossScaler&) const = default;
};

// Before the first step.
LossScaler first_scaler(const LossScaleConfig& config);

// What `scaler` becomes behind a step, in which the gradients had infinity or NaN or not.
LossScaler next_scaler(const LossScaleConfig& config, const LossScaler& scaler, bool overflow);

// Whether a step that overflows finds a dynamic scale at its minimum, where it can fall no further.
// A scale that began below it is not there yet.
bool at_floor(const LossScaleConfig& config, const LossScaler& scaler);

// Whether overflows are part of a run: the scale is dynamic, so that they tell it how far it may
// go.
bool searches_scale(const Config& config);

// What measures or judges single steps: no dynamic scale above 2^10, so that none is skipped for
// the search.
void settle_scale(LossScaleConfig& config);

}  // namespace ds
