#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

// Functions with this attribute use AVX512_BF16 and run only after refuse() or refuse_head() of
// linear.cpp has accepted the machine.
#define DS_TARGET_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace ds::gemm {

// One tile of c over one block of k. A pair is two neighbours along k in one 32-bit word, the lower
// k in the low half. Sums run over steps of k in order, in f32, whatever the blocks are: a partial
// sum is kept as f32.
struct TileJob {
  // The tile's rows of a, as packed by pack_a_* of the micro-kernel or in place.
  const std::byte* a = nullptr;
  // The distance between rows of a in bytes, if they are in place.
  int64_t a_row = 0;
  // The tile's panel of b, as packed by pack_b_*, 64-byte aligned.
  const uint32_t* b = nullptr;
  int64_t pairs = 0;
  // The partial sums, [tile rows][tile columns]. They are read unless this block is the first, and
  // written unless it is the last.
  float* partial = nullptr;
  bool first = true, last = true;
  // Where the tile of c goes after the last block if it is rounded to bf16; null if `wide` is set.
  bf16* c = nullptr;
  // Where the tile of c goes after the last block if it stays f32, without a bias; null if `c` is
  // set.
  float* wide = nullptr;
  int64_t ldc = 0, rows = 0, columns = 0;
  // The bias of the tile's columns, or null.
  const bf16* bias = nullptr;
};

// `count` vectors of a matrix, `depth` long. Along k: a vector is contiguous, and vectors are `ld`
// elements apart. Across k: element (k, i) is at from[k * ld + i]. Elements beyond the vectors, as
// far as the micro-kernel reads, are packed as 0.
struct Source {
  const bf16* from;
  int64_t ld, count, depth;
};

// How one instruction set computes a tile. A group is the rows of a that are packed together.
struct Micro {
  // The size of a tile. tile_rows divides kGroup, and tile_columns divides Cut::width.
  int64_t tile_rows, tile_columns;
  // The number of elements along k that one instruction sums. A block consists of whole steps.
  int64_t step;
  // The largest depth of a block.
  int64_t most_depth;
  // The largest size of a packed slab of b, in bytes.
  int64_t slab_bytes;
  // cut_product() halves the rows of a task, to get more tasks, only while they are more than this.
  // b is packed once for all rows of a task, so fewer rows cost more packing.
  int64_t fewest_rows;
  // The number of tasks per thread that cut_product() aims for.
  int64_t tasks_per_thread;
  // Returns the size in bytes of a packed group.
  int64_t (*group_bytes)(int64_t depth);
  void (*pack_b_along)(const Source&, uint32_t* slab);
  void (*pack_b_across)(const Source&, uint32_t* slab);
  // pack_a_along packs the rows of one tile, and pack_a_across packs the rows of a group.
  void (*pack_a_along)(const Source&, std::byte* tile);
  void (*pack_a_across)(const Source&, std::byte* group);
  // Computes a tile from rows of a in place, a_row bytes apart. k must be contiguous, the rows must
  // fill the tile, and the depth must be a multiple of `step`. Null if packed rows are faster.
  void (*run_stored)(const TileJob& job);
  void (*run_packed)(const TileJob& job);
  // Called on the task's thread before its first tile and after its last.
  void (*begin)();
  void (*end)();
};

// The number of rows in a group. If a is stored across k, the elements of a group for one k fill
// one cache line.
constexpr int64_t kGroup = 32;
constexpr int64_t kMostTileElements = 32 * 32;

}  // namespace ds::gemm
