#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// Element d of head h of row r is at r * row + h * head + d behind an operand's address.
struct Heads {
  Operand at;
  int64_t row, head;
};

struct AttentionArgs {
  Heads q, k, v, y, dy, dq, dk, dv;
  const int32_t* mask;   // null: every key counts
  const int32_t* first;  // null: no documents
  float* lse;            // [heads, rows]
  float* delta;          // [heads, rows]: dy . y
  uint8_t* alone;        // [rows]: whether a row sees one key only
  float* queries;        // [heads, rows, kOfQueryFloats], in place of both on tensor cores
  const StepScalars* scalars;
  int64_t rows, seq, window;
  int64_t words;  // of the random stream, between two rows of one head
  int64_t leaf;
  int32_t heads, group, depth, causal;  // group: query heads of a key head
  float scale, cap;
  float share, factor;  // of dropout; share 0: none
  uint32_t op;
  uint32_t reserved;
};

// Attention of the rows of one text to the keys and values of a cache, of which a block takes
// `share` keys for one row of one head.
struct CachedArgs {
  Heads q, k, v, y;
  Operand cache;             // [2 key heads, capacity, depth]: keys, then values
  const int32_t* positions;  // [rows]
  float* parts;  // [rows, heads, most_parts, depth + 2]: a sum of values, its top, its weight
  int64_t rows, capacity, window, share, most_parts;
  int32_t heads, group, groups, depth;
  float scale, cap;
};
constexpr uint32_t kCachedWarps = 4;
constexpr int kWarpKeys = 4;  // keys whose products a warp makes at a time

constexpr int kTile = 32;     // rows of a block, and keys that it has at a time
constexpr int kMmaTile = 64;  // keys, or queries, that those on tensor cores have at a time
constexpr uint32_t kAttentionThreads = 128;  // of both
// Strips of 16 queries that a warp on tensor cores has, four of which are a block, for heads of
// `depth` columns.
constexpr int strips_of(int64_t depth) { return depth == 64 ? 2 : 1; }
// Elements from row to row in shared memory. Eight rows at once are read from different banks: by a
// pitch, or, where six tiles would not fit into the 99 KiB that sm_86 and later have, by eights
// that change places.
constexpr int mma_pitch(int64_t depth) { return static_cast<int>(depth == 64 ? depth + 8 : depth); }

constexpr int kOfQueryFloats = 4;  // of what backward on tensor cores needs of a query

// dy . y beside tensor cores: threads for a row of a head.
constexpr int delta_lanes(int64_t depth) { return depth <= 64 ? 8 : 16; }
// Else: a thread for each row of each head, 32 elements of which are in shared memory at a time.
constexpr uint32_t kDeltaThreads = 128;  // of both
constexpr int kDeltaPitch = 33;  // floats of a row there: no two threads of a warp meet in a bank
constexpr uint32_t kDeltaRoom = 2 * kDeltaThreads * kDeltaPitch * sizeof(float);

}  // namespace ds::cuda
