#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

struct NormsArgs {
  Operand x;
  double* out;
  int64_t granules, granule;  // how many, and elements of one
};

// A piece of a sum's order: `count` elements from `begin` on go to place `to`.
struct GatherPiece {
  int64_t begin, count, to;
};
constexpr int kPieces = 64;
struct GatherArgs {
  const double* from;
  double* to;
  const float*
      ordered;  // scatter_runs: what lies at `to` of a piece goes to its `begin` of `placed`
  float* placed;
  int64_t pieces;
  GatherPiece piece[kPieces];
};

struct BlockSumsArgs {
  const double* from;
  double* to;
  int64_t count;
};
constexpr int64_t kSumBlock = 256;

struct StepArgs {
  const double* sum;    // of squares
  const float* losses;  // of all ranks
  double* out;          // sum_norms
  StepScalars* scalars;
  double ranks, max_norm;
  int64_t micros, rank_count;
  int64_t unit;  // of the weights behind the losses of each rank; 0: there are none
  int64_t unchecked;
};

// x / (norm of x + eps), the squares in pieces of `piece` elements.
struct UnitArgs {
  Operand x, out;
  double* pieces;
  int64_t count, piece, piece_count, wide;
  double eps;
};

struct TreeSumArgs {
  Operand part;  // of rank 0; others have its type
  const void* parts[64];
  Operand out;
  int64_t count, ranks;
  int64_t wide;
};

}  // namespace ds::cuda
