#pragma once
#include <cstdint>

#include "core/base/group_scalars.h"
#include "core/device/scalars.h"

namespace ds::cuda {

class Launcher;
struct Arguments;

// The constants of one update, computed by one thread in f64 and rounded once. Each rule of
// update.cu defines its own v[i].
struct UpdateConstants {
  float v[16];
  // The random stream of stochastic rounding (seed, step, param), and the index in the parameter of
  // the first element.
  uint64_t seed;
  uint32_t step, param;
  int64_t element;
  // Not 0 if the step is skipped; masters and states then do not change.
  int64_t skip;
};

// The optimizers whose constants the kernel update_constants can compute.
enum class Rule : int32_t {
  adamw = 0,
  sgd,
  lion,
  adagrad,
  momentum,
  own_gradient,
  muon_momentum,
  muon,
  lamb
};

// The argument of the kernel update_constants.
struct ConstantsArgs {
  const StepScalars* scalars;
  UpdateConstants* to;
  // Used in place of StepScalars::group if own_group is set.
  GroupScalars group;
  // As in RunScalars.
  int64_t missed, param, element;
  // Real attributes of the rule.
  double real[3];
  Rule rule;
  int32_t own_group;
  // Attributes of the rule that are 0 or 1.
  int32_t flag[4];
};

// Launches the kernel that computes the constants of an update. Returns their address, which is the
// beginning of the scratch memory. `a` has the rule and its attributes.
const UpdateConstants* start_constants(Launcher& launcher, const Arguments& c, ConstantsArgs a);

}  // namespace ds::cuda
