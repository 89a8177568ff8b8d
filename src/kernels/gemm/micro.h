#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

// Functions that carry this attribute use AVX512_BF16 and run only after gemm::refuse() has
// accepted the machine.
#define DS_TARGET_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace ds::gemm {

// One tile of c over one block of k. A pair is two neighbours along k in one 32-bit word, the lower
// k in the low half. Sums run over steps of k in order, f32, whatever the blocks are: a partial sum
// is kept as f32.
struct TileJob {
  const std::byte* a =
      nullptr;        // its rows as the micro-kernel's pack_a_* leave them, or as they are stored
  int64_t a_row = 0;  // bytes from one stored row to the next
  const uint32_t* b = nullptr;  // a panel as pack_b_* leave it, 64-byte aligned
  int64_t pairs = 0;
  float* partial = nullptr;  // [tile rows][tile columns]; read unless first, written unless last
  bool first = true, last = true;
  // Used when last: where the tile goes, rounded to c or as it is to the one of both that is not
  // null.
  bf16* c = nullptr;
  float* wide = nullptr;  // takes no bias
  int64_t ldc = 0, rows = 0, columns = 0;
  const bf16* bias = nullptr;  // of the tile's columns; null: none
};

// Where `count` vectors of a matrix lie, `depth` long: contiguous along k and `ld` elements apart,
// or across it, element (k, i) at from[k * ld + i]. What lies beyond them, up to whole tiles, is
// packed as 0.
struct Source {
  const bf16* from;
  int64_t ld, count, depth;
};

// How one instruction set makes a tile. A group is the rows of a that are packed together.
struct Micro {
  int64_t tile_rows, tile_columns;  // divide kGroup and Cut::width
  int64_t step;              // numbers along k that one instruction sums; a block is whole steps
  int64_t most_depth;        // of a block
  int64_t slab_bytes;        // at most, of packed b
  int64_t fewest_rows;       // of a task, where there are as many: b is packed once for all of them
  int64_t tasks_per_thread;  // at least, where rows and columns allow it
  int64_t (*group_bytes)(int64_t depth);
  void (*pack_b_along)(const Source&, uint32_t* slab);
  void (*pack_b_across)(const Source&, uint32_t* slab);
  // The rows of one tile, and those of a group.
  void (*pack_a_along)(const Source&, std::byte* tile);
  void (*pack_a_across)(const Source&, std::byte* group);
  // With rows of a as they are stored, k contiguous, whole tiles and steps, a_row bytes apart: null
  // where packed rows are faster.
  void (*run_stored)(const TileJob& job);
  void (*run_packed)(const TileJob& job);
  void (*begin)();  // before the tiles of a task, on its thread, and after them
  void (*end)();
};

constexpr int64_t kGroup = 32;  // one cache line of a row that is stored across k
constexpr int64_t kMostTileElements = 32 * 32;

}  // namespace ds::gemm
