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
  double* terms;        // of each row, 0 without a target
  float* loss;
  const float* dloss;
  float* scale;  // dloss / rows with a target
  Operand to;    // gradients of logits, `to_stride` elements apart
  int64_t rows, words, stride, to_stride;
  int64_t first;   // word of column 0
  int64_t begins;  // 1: the block of word 0 begins a row's softmax, else it joins it
};
constexpr uint32_t kLossThreads = 256;

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
