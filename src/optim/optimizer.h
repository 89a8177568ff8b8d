#pragma once
#include <string>
#include <vector>

#include "core/base/attrs.h"
#include "core/config/config.h"
#include "core/program/instruction.h"

namespace ds {

// One row of the registry: an elementwise optimizer as the compile side and checkpoints see it. Its update is
// one instruction, in: grad f32, scalars; out: master f32, the states f32 in this order (all read and
// written), param in the compute type.
struct Optimizer {
  std::vector<std::string> types;   // values of optimizer.type that choose it
  Op op;                            // the update instruction (docs/reference/ops.md)
  std::vector<std::string> states;  // per-element f32 states beside master, zero at first; torch's names
  Attrs (*attrs)(const OptimizerConfig& config);
};

const std::vector<Optimizer>& optimizers();

// The row of config.type; DS_ERROR_CONFIG naming the type when there is none.
const Optimizer& optimizer_of(const OptimizerConfig& config);

}  // namespace ds
