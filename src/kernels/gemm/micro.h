#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

// Functions that carry this attribute use AVX512_BF16 and run only after gemm::refuse() has accepted the
// machine.
#define DS_TARGET_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace ds::gemm {

// A register tile of c: 24 accumulators of 16 f32. 8 + 3 loads feed 24 dot products.
constexpr int64_t kTileRows = 8, kTileColumns = 48;
constexpr int64_t kTileElements = kTileRows * kTileColumns;

// One tile over one block of k. A pair is two neighbours along k in one 32-bit word, the lower k in the low
// half. Sums run over pairs in order, f32, whatever the blocks are: a partial sum is kept as f32.
struct TileJob {
  const std::byte* a = nullptr;  // pair p of row i: a + i * a_row + p * (4, or 32 when packed) bytes
  int64_t a_row = 0;             // bytes
  const uint32_t* b = nullptr;   // [pairs][48], 64-byte aligned
  int64_t pairs = 0;
  float* partial = nullptr;  // [8][48]; read unless first, written unless last
  bool first = true, last = true;
  // Used when last: where the tile goes, rounded to c or as it is to the one of both that is not null;
  // rows <= 8, columns <= 48.
  bf16* c = nullptr;
  float* wide = nullptr;  // takes no bias
  int64_t ldc = 0, rows = kTileRows, columns = kTileColumns;
  const bf16* bias = nullptr;  // of the tile's columns; null: none
};

void run_tile_direct(const TileJob& job);  // a as it is stored, k contiguous
void run_tile_packed(const TileJob& job);  // a[pairs][8], a_row 4

}  // namespace ds::gemm
