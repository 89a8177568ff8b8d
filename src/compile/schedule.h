#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/program/program.h"

namespace ds {

// What a rank does next in a step. A schedule is a list of these and nothing else: the compiler
// lowers them one after the other. chunk: the part of the model, of which there is one today.
// backward is both halves of the way back: backward_input, which other ranks wait for, and
// backward_weight, which can come later. No schedule divides them yet.
struct Action {
  enum class Kind : int8_t { forward = 0, backward, backward_input, backward_weight };
  Kind kind = Kind::forward;
  int chunk = 0;
  MicroId micro{0};
  bool operator==(const Action&) const = default;
};

// Each micro-step forward and at once backward: the order of gradient accumulation on one stage.
std::vector<Action> accumulate_in_turn(int32_t micros);

// Throws DS_ERROR_INTERNAL naming the action unless every micro-step has its forward and, behind
// it, its backward, each once, and the backwards come in the order of micro-steps: gradients are
// added in that order, so the bits do not depend on the schedule.
void check_schedule(std::span<const Action> schedule, int32_t micros);

}  // namespace ds
