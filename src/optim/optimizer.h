#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/attrs.h"
#include "core/config/config.h"
#include "core/program/instruction.h"

namespace ds {

// What becomes of a step's gradients. The optimizers of most rows have one form.
//   reduced: they are summed over all ranks, and each rank updates its part with the sum.
//   compressed: they stay where they are. Every rank updates the whole momentum with its own mean gradient;
//   what is exchanged is the momentum, as signs (docs/adr/0039).
enum class StepForm : int8_t { reduced = 0, compressed };

// One row of the registry: an elementwise optimizer as the compile side and checkpoints see it. Its update is
// one instruction, in: grad f32, scalars; out: master f32, the states f32 in this order (all read and
// written), param in the compute type.
struct Optimizer {
  std::vector<std::string> types;   // values of optimizer.type that choose it
  Op op;                            // the update instruction (docs/reference/ops.md)
  std::vector<std::string> states;  // per-element f32 states beside master, zero at first; torch's names
  Attrs (*attrs)(const OptimizerConfig& config);
  // The form of the step behind so many updates; null: always `reduced`.
  StepForm (*form)(const OptimizerConfig& config, int64_t updates) = nullptr;

  // Every rank keeps the whole of its first state, the momentum, and errors of what it compresses.
  bool compresses() const { return form != nullptr; }
};

const std::vector<Optimizer>& optimizers();

// The row of config.type; DS_ERROR_CONFIG naming the type when there is none.
const Optimizer& optimizer_of(const OptimizerConfig& config);

}  // namespace ds
