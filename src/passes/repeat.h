#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// Expects a program that contains only some micro-steps of a step (StepBuffers::grads): `missing`
// micro-steps are left out in the middle. Repeats a stretch of `micros` micro-steps in their place.
// Returns false, with the program unchanged, if no stretch in the middle can be repeated. Runs
// after hoist.
bool repeat_micros(Program& program, int32_t missing, int32_t micros);

}  // namespace ds
