#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"
#include "kernels/cuda/update_constants.h"

namespace ds::cuda {

// in and out in the order of the operation: of an elementwise optimizer grad; master, states,
// param.
struct UpdateArgs {
  Operand grad, master, state[2], param;
  int64_t count;
  const UpdateConstants* constants;
  int32_t wide;
  int32_t drawn;  // masters and states in bf16 are rounded by draws
  int32_t flag;   // an attribute of the rule
  int32_t same;   // param is the master
};

constexpr int kUpdated = 4;  // neighbours that a thread renews

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
