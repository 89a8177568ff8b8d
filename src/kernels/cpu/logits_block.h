#pragma once
#include <cstdint>

#include "core/base/dtype.h"
#include "core/device/thread_team.h"
#include "kernels/row_loss.h"
#include "kernels/row_softmax.h"

namespace ds::cpu {

// The logits [rows, words] of the words from `first` on, rows `ld` apart. targets: one a row,
// negative: none.
struct LogitsBlock {
  float* data;
  int64_t rows, words, ld, first;
  const int32_t* targets;

  // The column of row r's target, -1 when it is in another block or there is none.
  int64_t target(int64_t r) const {
    int64_t column = targets[r] - first;
    return targets[r] >= 0 && column >= 0 && column < words ? column : -1;
  }
};

// A block joins the softmax of its rows, which the block of word 0 begins. logits: the target's,
// once its block has come. spreads: null, or what RowLoss::value wants of the words so far.
void fold_block(const LogitsBlock& block, RowSoftmax<float>* stats, float* logits, float* spreads,
                ThreadTeam& team);
// Logits become dloss times the gradients of `loss`, 0 in rows without a target, rounded to `dtype`
// (f32 or bf16) and moved to the front of their row.
void logit_gradients(const LogitsBlock& block, const RowSoftmax<float>* stats,
                     const RowLoss<float>& loss, const LossGradient<float>& dloss, DType dtype,
                     ThreadTeam& team);

}  // namespace ds::cpu
