#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The softmax of a row, as kernels/row_softmax.h has it.
struct RowStats {
  float top, rest;
};

struct LossArgs {
  Operand logits;          // [rows, words], `stride` elements apart
  const int32_t* targets;  // one a row; negative: none
  RowStats* stats;
  float* target_logit;  // of each row; made as its block comes
  float* spread;        // of each row, the sum of top - logit; null where nothing is smoothed
  double* terms;        // of each row, 0 without a target
  float* loss;          // one, or with Reduction::none one a row
  const float* dloss;
  float* scale;  // of every row: what dloss is divided to; null: row r has dloss[r]
  Operand to;    // gradients of logits, `to_stride` elements apart
  int64_t rows, words, stride, to_stride;
  int64_t first;   // word of column 0
  int64_t begins;  // 1: the block of word 0 begins a row's softmax, else it joins it
  int64_t all_words;
  float smoothing, z;  // of kernels/row_loss.h
  int32_t mean, each;  // of Reduction: 1 for `mean`; 1 for `none`
  int32_t
      padded;  // 1: elements of rows of logits and of `to` behind the words are there, and become 0
  int32_t reserved;
};
constexpr uint32_t kLossThreads = 256;

// y = softmax(x) of rows of `width`, or its logarithm; or dx (as y) of dy and that result (as x).
struct SoftmaxArgs {
  Operand x, dy, y;
  int64_t width, seq;  // seq: row r has columns 0 to r mod seq; 0: all
  int32_t log, reserved;
};

// loss = (sum of terms in fixed order) / count, of squares of differences where terms are operands.
struct MeanArgs {
  Operand x, target;
  double* partial;
  float* loss;
  int64_t count, blocks;
};
constexpr int64_t kMeanShare = 4096;  // elements of a block

// c = a b of row-major operands; see product.h.
struct ProductArgs {
  Operand a, b, c, bias;
  int64_t m, n, k, lda, ldb, ldc;
  int32_t transpose_a, transpose_b;
  int32_t added, reserved;
};
constexpr int kProductTile = 32;  // rows and columns of c of a block; 64 threads

}  // namespace ds::cuda
