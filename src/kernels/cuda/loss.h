#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The denominator of a row's softmax in two parts: the largest logit, and the sum of exp(logit -
// top) over all other logits (kernels/formulas/row_softmax.h).
struct RowStats {
  float top, rest;
};

// The argument of the cross-entropy kernels. A launch has the logits of all words, or of the block
// of `words` words from `first` on.
struct LossArgs {
  // [rows, words], with rows `stride` elements apart.
  Operand logits;
  // [rows]: the target of each row. Negative if the row has no target.
  const int32_t* targets;
  // [rows]: the softmax over the words so far.
  RowStats* stats;
  // [rows]: the logit of the target, written by the launch whose block contains the target.
  float* target_logit;
  // [rows]: the sum of top - logit over the words so far. Null without label smoothing.
  float* spread;
  // [rows]: the loss of each row, or 0 if the row has no target.
  double* terms;
  // The loss: one value or, with Reduction::none, one value for each row.
  float* loss;
  const float* dloss;
  // The gradient of the loss of every row, which is dloss divided by the divisor of the reduction.
  // Null if row r has the gradient dloss[r].
  float* scale;
  // The gradient of the logits, with rows `to_stride` elements apart.
  Operand to;
  int64_t rows, words, stride, to_stride;
  // The word of column 0.
  int64_t first;
  // 1 if this is the first block of its rows. If 0, its words are added to the stats of earlier
  // blocks.
  int64_t begins;
  // The number of words of all blocks.
  int64_t all_words;
  // The attributes label_smoothing and z_loss; see kernels/formulas/row_loss.h.
  float smoothing, z;
  // `mean` is 1 for Reduction::mean; `each` is 1 for Reduction::none.
  int32_t mean, each;
  // 1 if rows of the logits and of `to` are padded up to their strides. The kernels set the padding
  // to 0.
  int32_t padded;
  int32_t reserved;
};
constexpr uint32_t kLossThreads = 256;

// The argument of softmax: y = softmax(x), or its logarithm if `log` is set, over rows of `width`
// columns. For the gradient, x is the result of forward and y receives dx.
struct SoftmaxArgs {
  Operand x, dy, y;
  // If `seq` is not 0, the softmax of row r is over columns 0 to r mod seq only.
  int64_t width, seq;
  int32_t log, reserved;
};

// The argument of mse: loss = (sum of (x - target)^2) / count. The sum has a fixed order: within
// blocks of kMeanShare elements, then over the blocks.
struct MeanArgs {
  Operand x, target;
  double* partial;
  float* loss;
  int64_t count, blocks;
};
// The number of elements whose squared differences one block of threads adds up.
constexpr int64_t kMeanShare = 4096;

// The argument of `product`: c = a b with row-major operands, plus `bias` and, with `added`, plus
// the old c; see product.h.
struct ProductArgs {
  Operand a, b, c, bias;
  int64_t m, n, k, lda, ldb, ldc;
  int32_t transpose_a, transpose_b;
  int32_t added, reserved;
};
// A block of 64 threads computes a tile of c with this many rows and columns.
constexpr int kProductTile = 32;

}  // namespace ds::cuda
