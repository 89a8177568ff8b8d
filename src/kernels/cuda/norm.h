#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

// Of layer_norm and rms_norm: rows (rms_norm: runs) of `width`. w and b are null where they are
// absent.
struct NormArgs {
  Operand x, w, b, dy;
  Operand y;  // or dx
  float *mean, *rstd;
  int64_t rows, width;
  float eps, offset;  // offset is added to w
  float share;        // 1 / width
  int32_t reserved;
};

// Sums over rows, by chunks of kChunk rows to `partial` [chunk][sum][column].
struct ColumnArgs {
  Operand dy, x;
  const float *mean, *rstd;
  float* partial;
  Operand dw, db;
  int64_t rows, width, chunks;
  int32_t sums;  // 1: dw or db alone, 2: both
  int32_t kind;  // 0: sums of dy; 1: of dy x rstd; 2: of dy (x - mean) rstd and of dy
};
constexpr int64_t kChunk = 128;
constexpr int kColumnParts = 8;  // of a sum, one behind the other

}  // namespace ds::cuda
