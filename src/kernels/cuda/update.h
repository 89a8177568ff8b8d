#pragma once
#include <cstdint>

#include "core/base/group_scalars.h"
#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The constants of one update, formed by one thread in f64 and rounded once; each rule of update.cu says
// which it reads.
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

// in and out in the order of the operation: of an elementwise optimizer grad; master, states, param.
struct UpdateArgs {
  Operand grad, master, state[2], param;
  int64_t count;
  const UpdateConstants* constants;
  int32_t wide;
  int32_t drawn;  // masters and states in bf16 are rounded by draws
  int32_t flag;   // an attribute of the rule
  int32_t same;   // param is the master
};

constexpr unsigned kCodesUpdateThreads = 256;

// Of adamw_codes: a warp for each block of codes.
struct CodesUpdateArgs {
  Operand grad, master, param;
  uint8_t *mean_codes, *mean_scales, *square_codes, *square_scales;
  int64_t blocks;
  const UpdateConstants* constants;
  int32_t wide;
  int32_t drawn;  // codes, and masters in bf16, are rounded by draws
  int32_t same;   // param is the master
};

}  // namespace ds::cuda
