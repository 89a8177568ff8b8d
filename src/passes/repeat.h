#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// Expects a program that contains some micro-steps of a step (StepBuffers::grads); `missing` more
// belong before the last one. Repeats a stretch of `micros` micro-steps to stand for the missing
// ones. Returns false, with the program unchanged, if no stretch in the middle can do so. Runs
// after hoist.
bool repeat_micros(Program& program, int32_t missing, int32_t micros);

}  // namespace ds
