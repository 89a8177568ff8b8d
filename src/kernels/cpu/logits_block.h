#pragma once
#include <cstdint>

#include "core/base/dtype.h"
#include "core/device/thread_team.h"
#include "kernels/formulas/row_loss.h"
#include "kernels/formulas/row_softmax.h"

namespace ds::cpu {

// The logits [rows, words] of the words from `first` on, with rows `ld` floats apart. `targets` has
// one entry for each row; a negative entry means that the row has no target.
struct LogitsBlock {
  float* data;
  int64_t rows, words, ld, first;
  const int32_t* targets;

  // Returns the column of row r's target, or -1 if this block does not have it.
  int64_t target(int64_t r) const {
    int64_t column = targets[r] - first;
    return targets[r] >= 0 && column >= 0 && column < words ? column : -1;
  }
};

// Folds a block into `stats`, the softmax of each row. The block with word 0 comes first. If the
// block has the target of a row, stores the target's logit in `logits`. `spreads`, which is null
// without label smoothing, accumulates the spread of each row that RowLoss::value() needs.
void fold_block(const LogitsBlock& block, RowSoftmax<float>* stats, float* logits, float* spreads,
                ThreadTeam& team);
// Turns logits into dloss times the gradients of `loss` (0 in rows without a target), rounded to
// `dtype` and moved to the front of their row.
void logit_gradients(const LogitsBlock& block, const RowSoftmax<float>* stats,
                     const RowLoss<float>& loss, const LossGradient<float>& dloss, DType dtype,
                     ThreadTeam& team);

}  // namespace ds::cpu
