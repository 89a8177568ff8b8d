#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The argument of granule_norms: out[g] = the sum of squares of granule g.
struct NormsArgs {
  Operand x;
  double* out;
  // The number of granules, and the number of elements of a granule.
  int64_t granules, granule;
};

// A range of elements to move: `count` elements, from index `begin` in the tensor to index `to` in
// the order of the sum.
struct GatherPiece {
  int64_t begin, count, to;
};
constexpr int kPieces = 64;
// The argument of gather_sums, which copies pieces from `from` to `to`, and of scatter_runs, which
// copies them back: from index `to` of `ordered` to index `begin` of `placed`.
struct GatherArgs {
  const double* from;
  double* to;
  const float* ordered;
  float* placed;
  int64_t pieces;
  GatherPiece piece[kPieces];
};

// The argument of block_sums: to[k] = the sum of block k of kSumBlock elements of `from`.
struct BlockSumsArgs {
  const double* from;
  double* to;
  int64_t count;
};
constexpr int64_t kSumBlock = 256;

// The argument of the single-thread kernels sum_norms, clip, losses and mean_gradients; each kernel
// uses some of the fields.
struct StepArgs {
  // The sum of the squares of the gradients.
  const double* sum;
  // The losses of all ranks.
  const float* losses;
  // The result of sum_norms.
  double* out;
  StepScalars* scalars;
  double ranks, max_norm;
  int64_t micros, rank_count;
  // The divisor of the weights, which follow the losses of each rank. 0 if there are no weights.
  int64_t unit;
  // 1 if a step whose norm or loss is not finite is not skipped.
  int64_t unchecked;
};

// The argument of unit_pieces and unit_matrix: out = x / (norm of x + eps). The squares are added
// up in pieces of `piece` elements, whose sums are in `pieces`.
struct UnitArgs {
  Operand x, out;
  double* pieces;
  int64_t count, piece, piece_count, wide;
  double eps;
};

// The argument of tree_sum: out = the sum over ranks of `parts`.
struct TreeSumArgs {
  // Only the type is used. All parts have this type.
  Operand part;
  const void* parts[64];
  Operand out;
  int64_t count, ranks;
  int64_t wide;
};

}  // namespace ds::cuda
