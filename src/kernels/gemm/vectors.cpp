// The micro-kernel of AVX512_BF16: 8 x 48 elements of c in 24 of the 32 vector registers. For each
// pair along k, 8 broadcasts of a and 3 loads of b feed 24 dot products. A panel of at most 16 or
// 32 columns, as products with the narrow matrices of adapters have, takes one or two vectors of a
// row; the others are neither packed nor read.
#include "kernels/gemm/vectors.h"

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/round.h"
#include "kernels/gemm/pack.h"

namespace ds::gemm {
namespace {

constexpr int64_t kTileRows = 8, kTileColumns = 48;
// pack_a_across() prefetches the rows for k + kRowsAhead while it packs those for k.
constexpr int64_t kRowsAhead = 32;

DS_TARGET_AVX512_BF16 inline __m512i broadcast_pair(const std::byte* at) {
  int pair;
  // With an odd leading dimension, pairs are only aligned to 2 bytes.
  std::memcpy(&pair, at, sizeof pair);
  return _mm512_set1_epi32(pair);
}

// The sums of a tile whose rows have kVectors vectors.
template <int kVectors>
struct Accumulators {
  __m512 v[kTileRows][kVectors];
};

template <int kVectors>
DS_TARGET_AVX512_BF16 inline __attribute__((always_inline)) void multiply_row(
    Accumulators<kVectors>& sum, int row, const std::byte* a, const __m512i (&b)[kVectors]) {
  __m512i pair = broadcast_pair(a);
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) {
    sum.v[row][j] = _mm512_dpbf16_ps(sum.v[row][j], (__m512bh)pair, (__m512bh)b[j]);
  }
}

template <int kVectors>
DS_TARGET_AVX512_BF16 void store_tile(const TileJob& job, const Accumulators<kVectors>& sum) {
  for (int j = 0; j < kVectors; ++j) {
    const __mmask16 mask = lanes16(job.columns - 16 * j);
    if (job.wide) {
      for (int i = 0; i < job.rows; ++i) {
        _mm512_mask_storeu_ps(job.wide + i * job.ldc + 16 * j, mask, sum.v[i][j]);
      }
      continue;
    }
    const __m512 bias = bias_at(job, 16 * j);
    for (int i = 0; i < job.rows; ++i) {
      __m256bh narrow = _mm512_cvtneps_pbh(_mm512_add_ps(sum.v[i][j], bias));
      _mm256_mask_storeu_epi16(job.c + i * job.ldc + 16 * j, mask, (__m256i)narrow);
    }
  }
}

// Computes a tile. Pair p of row i is i * row + p * kPairStep bytes after job.a. Addresses are kept
// as three pointers with offsets of up to two rows, because x86 addressing offers a base plus 1 or
// 2 times an index.
template <int kPairStep, int kVectors>
DS_TARGET_AVX512_BF16 inline __attribute__((always_inline)) void run_tile(const TileJob& job,
                                                                          int64_t row) {
  Accumulators<kVectors> sum;
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      sum.v[i][j] = job.first ? _mm512_setzero_ps()
                              : _mm512_loadu_ps(job.partial + i * kTileColumns + 16 * j);
    }
  }
  const std::byte *a0 = job.a, *a3 = a0 + 3 * row, *a6 = a0 + 6 * row;
  const uint32_t* from = job.b;
  for (int64_t p = 0; p < job.pairs; ++p) {
    __m512i b[kVectors];
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) b[j] = _mm512_load_si512(from + 16 * j);
    multiply_row(sum, 0, a0, b);
    multiply_row(sum, 1, a0 + row, b);
    multiply_row(sum, 2, a0 + 2 * row, b);
    multiply_row(sum, 3, a3, b);
    multiply_row(sum, 4, a3 + row, b);
    multiply_row(sum, 5, a3 + 2 * row, b);
    multiply_row(sum, 6, a6, b);
    multiply_row(sum, 7, a6 + row, b);
    a0 += kPairStep;
    a3 += kPairStep;
    a6 += kPairStep;
    from += kTileColumns;
  }
  if (job.last) return store_tile(job, sum);
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j)
      _mm512_storeu_ps(job.partial + i * kTileColumns + 16 * j, sum.v[i][j]);
  }
}

int64_t pairs_of(const Source& s) { return ceil_div(s.depth, 2); }

DS_TARGET_AVX512_BF16 void pack_b_along(const Source& s, uint32_t* slab) {
  for (int64_t j = 0; j < s.count; j += kTileColumns) {
    const int64_t columns = std::min(kTileColumns, s.count - j);
    pack_panel({s.from + j * s.ld, s.ld, columns, s.depth}, round_up(columns, 16), kTileColumns,
               pairs_of(s), slab + j * pairs_of(s));
  }
}

// Packs b to panels of 48 columns: [panel][pair][48].
DS_TARGET_AVX512_BF16 void pack_b_across(const Source& s, uint32_t* to) {
  const int64_t ld = s.ld;
  const int64_t panel = pairs_of(s) * kTileColumns;
  const int64_t whole = s.count / kTileColumns * kTileColumns;
  const bf16* from = s.from;
  for (int64_t k = 0; k < s.depth; k += 2, from += 2 * ld, to += kTileColumns) {
    uint32_t* out = to;
    for (int64_t j = 0; j < whole; j += kTileColumns, out += panel) {
#pragma GCC unroll 3
      for (int i = 0; i < kTileColumns; i += 16) {
        _mm512_store_si512(out + i, pairs_across(from + j + i, ld, lanes16(16), s.depth - k));
      }
    }
    for (int i = 0; i < s.count - whole; i += 16) {
      __mmask16 mask = lanes16(s.count - whole - i);
      _mm512_store_si512(out + i, pairs_across(from + whole + i, ld, mask, s.depth - k));
    }
  }
}

// Packs a group of 32 rows to four panels of 8: [panel][pair][8].
DS_TARGET_AVX512_BF16 void pack_a_across(const Source& s, std::byte* group) {
  const int64_t ld = s.ld;
  const int64_t panel = pairs_of(s) * kTileRows;
  const __mmask16 first = lanes16(s.count), second = lanes16(s.count - 16);
  const bf16* from = s.from;
  auto* to = reinterpret_cast<uint32_t*>(group);
  for (int64_t k = 0; k < s.depth; k += 2, from += 2 * ld, to += kTileRows) {
    prefetch_row(from + kRowsAhead * ld);
    prefetch_row(from + (kRowsAhead + 1) * ld);
    __m512i low = pairs_across(from, ld, first, s.depth - k);
    __m512i high = pairs_across(from + 16, ld, second, s.depth - k);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + panel), _mm512_extracti64x4_epi64(low, 1));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * panel), _mm512_castsi512_si256(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 3 * panel),
                        _mm512_extracti64x4_epi64(high, 1));
  }
}

DS_TARGET_AVX512_BF16 void pack_a_along(const Source& s, std::byte* tile) {
  pack_panel(s, kTileRows, kTileRows, pairs_of(s), reinterpret_cast<uint32_t*>(tile));
}

int64_t group_bytes(int64_t depth) { return kGroup * round_up(depth, 2) * 2; }

template <int kPairStep>
DS_TARGET_AVX512_BF16 void run(const TileJob& job, int64_t row) {
  if (job.columns > 32) return run_tile<kPairStep, 3>(job, row);
  if (job.columns > 16) return run_tile<kPairStep, 2>(job, row);
  run_tile<kPairStep, 1>(job, row);
}

DS_TARGET_AVX512_BF16 void run_stored(const TileJob& job) { run<4>(job, job.a_row); }
DS_TARGET_AVX512_BF16 void run_packed(const TileJob& job) { run<4 * kTileRows>(job, 4); }

}  // namespace

const Micro& vectors() {
  static constexpr Micro micro{
      .tile_rows = kTileRows,
      .tile_columns = kTileColumns,
      .step = 2,
      .most_depth = 1024,
      .slab_bytes = 600 << 10,
      .fewest_rows = 128,
      .tasks_per_thread = 8,
      .group_bytes = group_bytes,
      .pack_b_along = pack_b_along,
      .pack_b_across = pack_b_across,
      .pack_a_along = pack_a_along,
      .pack_a_across = pack_a_across,
      .run_stored = run_stored,
      .run_packed = run_packed,
      .begin = [] {},
      .end = [] {},
  };
  return micro;
}

}  // namespace ds::gemm
