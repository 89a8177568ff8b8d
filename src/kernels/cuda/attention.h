#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// An operand of attention (q, k, v, y or a gradient). Element d of head h of row r is element r *
// row + h * head + d of `at`; so q, k and v may be parts of one packed tensor or separate tensors.
struct Heads {
  Operand at;
  int64_t row, head;
};

// The argument of all kernels of attention and its gradient, with and without tensor cores.
struct AttentionArgs {
  Heads q, k, v, y, dy, dq, dk, dv;
  // [rows]: 0 for keys that are masked out. Null if no key is masked out.
  const int32_t* mask;
  // [rows]: the first row of each row's document. Null if there are no documents.
  const int32_t* first;
  // [heads, rows]: the logarithm of the sum of exp(score). Forward writes it, backward reads it.
  float* lse;
  // [heads, rows]: the dot product of dy and y.
  float* delta;
  // [rows]: 1 if the row attends to exactly one key, else 0.
  uint8_t* alone;
  // [heads, rows, kOfQueryFloats]: the OfQuery of each row and head, which the tensor-core kernels
  // use in place of `delta` and `alone`.
  float* queries;
  const StepScalars* scalars;
  int64_t rows, seq, window;
  // The number of words of the random stream for each row of a head.
  int64_t words;
  int64_t leaf;
  // `group` query heads share one key head.
  int32_t heads, group, depth, causal;
  float scale, cap;
  // The share of weights that dropout drops, or 0 without dropout, and 1 / (1 - share).
  float share, factor;
  uint32_t op;
  uint32_t reserved;
};

// The argument of cached_attention: rows of one text attend to the keys and values in a cache. A
// block computes one row of one head over `share` consecutive keys.
struct CachedArgs {
  Heads q, k, v, y;
  // [2, key heads, capacity, depth]: all keys, then all values.
  Operand cache;
  // [rows]: the position of each row in the cache.
  const int32_t* positions;
  // [rows, heads, most_parts, depth + 2]: for each part of the keys, the weighted sum of values,
  // the largest score, and the sum of the weights relative to that score.
  float* parts;
  int64_t rows, capacity, window, share, most_parts;
  int32_t heads, group, groups, depth;
  float scale, cap;
};
constexpr uint32_t kCachedWarps = 4;
// The number of keys whose dot products a warp computes at once.
constexpr int kWarpKeys = 4;

// The number of rows that a block of attention.cu processes, and of keys that it holds in shared
// memory at a time.
constexpr int kTile = 32;
// The number of keys, or queries, that a block of attention_mma.cu holds in shared memory at a
// time.
constexpr int kMmaTile = 64;
constexpr uint32_t kAttentionThreads = 128;
// Returns the number of strips of 16 queries that each of the four warps of a block computes on
// tensor cores, for heads of `depth` columns.
constexpr int strips_of(int64_t depth) { return depth == 64 ? 2 : 1; }
// Returns the pitch of rows in shared memory, in elements. Reading eight rows at once must not
// cause bank conflicts. At depth 64 a pitch of 72 avoids them. At depth 128, six padded tiles would
// not fit into the 99 KiB of sm_86 and later, so groups of eight elements are permuted instead
// (eight_at()).
constexpr int mma_pitch(int64_t depth) { return static_cast<int>(depth == 64 ? depth + 8 : depth); }

// The number of floats of an OfQuery: the values of a query that backward on tensor cores needs.
constexpr int kOfQueryFloats = 4;

// Returns the number of threads that share a row of a head in attention_queries_mma.
constexpr int delta_lanes(int64_t depth) { return depth <= 64 ? 8 : 16; }
// In attention_delta each thread computes one row of one head. 32 elements of the row are in shared
// memory at a time.
constexpr uint32_t kDeltaThreads = 128;
// The pitch of the rows of attention_delta in shared memory, in floats. It is odd, so that the
// threads of a warp use different banks.
constexpr int kDeltaPitch = 33;
constexpr uint32_t kDeltaRoom = 2 * kDeltaThreads * kDeltaPitch * sizeof(float);

}  // namespace ds::cuda
