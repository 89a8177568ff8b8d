#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"
#include "kernels/cuda/update_constants.h"

namespace ds::cuda {

// The argument of the elementwise optimizers, with the operands of the operation.
struct UpdateArgs {
  Operand grad, master, state[2], param;
  int64_t count;
  const UpdateConstants* constants;
  int32_t wide;
  // 1 if masters and states in bf16 are rounded stochastically.
  int32_t drawn;
  // An attribute of the rule, such as nesterov of sgd.
  int32_t flag;
  // 1 if `param` is the master itself and is not written separately.
  int32_t same;
};

// The number of consecutive elements that a thread updates.
constexpr int kUpdated = 4;

constexpr unsigned kCodesUpdateThreads = 256;

// The argument of adamw_codes: AdamW whose moments are stored as codes. A warp updates a block of
// 256 elements.
struct CodesUpdateArgs {
  Operand grad, master, param;
  uint8_t *mean_codes, *mean_scales, *square_codes, *square_scales;
  int64_t blocks;
  const UpdateConstants* constants;
  int32_t wide;
  // 1 if codes, and masters in bf16, are rounded stochastically.
  int32_t drawn;
  // 1 if `param` is the master itself and is not written separately.
  int32_t same;
};

}  // namespace ds::cuda
