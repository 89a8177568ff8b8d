#pragma once
#include <cstdint>

#include "core/base/group_scalars.h"
#include "core/device/scalars.h"

namespace ds::cuda {

class Launcher;
struct Arguments;

// The constants of one update, formed by one thread in f64 and rounded once; each rule of update.cu
// says which it reads.
struct UpdateConstants {
  float v[16];
  uint64_t seed;  // of draws that round
  uint32_t step, param;
  int64_t element;
  int64_t skip;  // nothing moves
};

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

struct ConstantsArgs {
  const StepScalars* scalars;
  UpdateConstants* to;
  GroupScalars group;  // in place of the step's, with own_group
  int64_t missed, param, element;
  double real[3];  // attributes of the rule
  Rule rule;
  int32_t own_group;
  int32_t flag[4];  // attributes of the rule
};

// Starts the launch that forms the constants of an update, and returns where they will be: at the
// beginning of the launch's scratch. a: the rule and its attributes.
const UpdateConstants* start_constants(Launcher& launcher, const Arguments& c, ConstantsArgs a);

}  // namespace ds::cuda
