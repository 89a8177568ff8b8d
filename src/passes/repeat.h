#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// The program has some of the micro-steps of a step (StepBuffers::grads); `missing` more are to
// come before the last. Repeats a stretch of `micros` micro-steps for them: false, and nothing has
// changed, when the middle of the program has none that can stand for more. Behind hoist.
bool repeat_micros(Program& program, int32_t missing, int32_t micros);

}  // namespace ds
