#pragma once
#include <cstdint>

#include "core/base/dtype.h"
#include "core/device/thread_team.h"

namespace ds::cpu {

// The logits [rows, words] of the words from `first` on, rows `ld` apart. targets: one a row, negative: none.
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

// What is known of a row's softmax after some blocks, beside its largest logit.
struct RowState {
  float sum;     // of exp(logit - largest)
  float target;  // the target's logit, once its block has come
};

// A block joins the state of its rows, which the block of word 0 begins.
void fold_block(const LogitsBlock& block, float* largest, RowState* states, ThreadTeam& team);
// Logits become scale (softmax - onehot(target)), 0 in rows without a target, rounded to `dtype` (f32 or
// bf16) and moved to the front of their row.
void logit_gradients(const LogitsBlock& block, const float* lse, float scale, DType dtype, ThreadTeam& team);

}  // namespace ds::cpu
