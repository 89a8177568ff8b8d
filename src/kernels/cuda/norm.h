#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The argument of layer_norm, rms_norm and their gradients, over rows of `width` elements; rms_norm
// may divide a row of the tensor into several such rows. An absent w or b has null data.
struct NormArgs {
  Operand x, w, b, dy;
  // The result; in the gradient, dx.
  Operand y;
  float *mean, *rstd;
  int64_t rows, width;
  // `offset` is added to w.
  float eps, offset;
  // The factor 1 / width, which turns a sum over a row into a mean.
  float share;
  int32_t reserved;
};

// The argument of the sums over rows that compute dw and db: first over chunks of kChunk rows into
// `partial` [chunk][sum][column], then over the chunks.
struct ColumnArgs {
  Operand dy, x;
  const float *mean, *rstd;
  float* partial;
  Operand dw, db;
  int64_t rows, width, chunks;
  // The number of sums: 1 for dw or db, 2 for both. In scale_rows_dw, the number of columns of the
  // gates.
  int32_t sums;
  // Selects the summands: 0 selects dy, 1 selects dy x rstd, and 2 selects dy (x - mean) rstd and
  // dy. In scale_rows_dw, the column of the gates.
  int32_t kind;
};
constexpr int64_t kChunk = 128;
// Each sum, over the rows of a chunk or over the chunks, is split into this many parts, which are
// then added in order.
constexpr int kColumnParts = 8;

}  // namespace ds::cuda
