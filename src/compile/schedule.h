#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/program/program.h"

namespace ds {

// One action of a rank in a step. A schedule is a list of actions, which the compiler lowers one
// after the other. `chunk` is the part of the model; today there is only chunk 0.
struct Action {
  enum class Kind : int8_t { forward = 0, backward };
  Kind kind = Kind::forward;
  int chunk = 0;
  MicroId micro{0};
  bool operator==(const Action&) const = default;
};

// Returns the order of gradient accumulation on one stage: the forward of each micro-step, directly
// followed by its backward.
std::vector<Action> accumulate_in_turn(int32_t micros);

// Throws DS_ERROR_INTERNAL naming the action unless every micro-step has one forward and, after it,
// one backward, and the backwards come in the order of micro-steps. Gradients are added in this
// order, so the bits do not depend on the schedule.
void check_schedule(std::span<const Action> schedule, int32_t micros);

}  // namespace ds
