// The micro-kernel of AMX: 32 x 32 elements of c in four tiles of 16 x 16 sums. A step is 32
// elements along k: two tiles of a (16 rows of 32 elements) and two of b (16 pairs of 16 columns)
// feed four products of 16 cycles each.
//
// The four loads of a step need 64 bytes per cycle, which the first-level cache delivers but the
// second-level cache hardly does. So rows of a are packed even if k is contiguous: their loads are
// then one stream, which the hardware prefetches, as it does the loads of b. (With a read in place,
// the products of a GPT-2 step took 1.4 times as long.) Because the products are so fast, packing
// costs relatively more, so tasks are larger than in vectors.cpp.
#include "kernels/gemm/tiles.h"

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/round.h"
#include "kernels/cpu/amx.h"
#include "kernels/gemm/pack.h"

namespace ds::gemm {
namespace {

using amx::kLine;
using amx::kSide;

// The number of rows, and of columns, of c that are computed together.
constexpr int64_t kTile = 2 * kSide;
// The number of elements along k that one step sums.
constexpr int64_t kStep = 2 * kSide;
// The bytes of a row of a tile of f32 sums.
constexpr int64_t kPartialRow = kTile * 4;
// The number of sums in the upper half of a tile.
constexpr int64_t kPartialHalf = kSide * kTile;

int64_t padded(int64_t depth) { return round_up(depth, kStep); }
int64_t group_bytes(int64_t depth) { return kGroup * padded(depth) * 2; }

// pack_b_along() and pack_b_across() pack b to panels of 32 columns, each as two halves [pair][16].
DS_TARGET_AVX512_BF16 void pack_b_along(const Source& s, uint32_t* slab) {
  const int64_t pairs = padded(s.depth) / 2;
  for (int64_t j = 0; j < round_up(s.count, kTile); j += kSide) {
    pack_panel({s.from + j * s.ld, s.ld, s.count - j, s.depth}, kSide, kSide, pairs,
               slab + j * pairs);
  }
}

DS_TARGET_AVX512_BF16 void pack_b_across(const Source& s, uint32_t* slab) {
  const int64_t pairs = padded(s.depth) / 2, columns = round_up(s.count, kTile);
  const bf16* from = s.from;
  for (int64_t p = 0; p < pairs; ++p, from += 2 * s.ld) {
    uint32_t* to = slab + p * kSide;
    for (int64_t j = 0; j < columns; j += kSide, to += pairs * kSide) {
      _mm512_store_si512(to, pairs_across(from + j, s.ld, lanes16(s.count - j), s.depth - 2 * p));
    }
  }
}

// pack_a_along() and pack_a_across() pack rows of a, the two tiles of each step one after the
// other: [step][32][64 bytes].
DS_TARGET_AVX512_BF16 void pack_a_along(const Source& s, std::byte* tile) {
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t k = 0; k < s.depth; k += kStep) {
      __mmask32 mask = i < s.count ? lanes32(s.depth - k) : 0;
      _mm512_store_si512(tile + i * kLine + k * kLine,
                         _mm512_maskz_loadu_epi16(mask, s.from + i * s.ld + k));
    }
  }
}

DS_TARGET_AVX512_BF16 void pack_a_across(const Source& s, std::byte* group) {
  for (int64_t k = 0; k < s.depth; k += kStep) {
    for (int64_t half = 0; half < kTile; half += kSide) {
      const bf16* from = s.from + k * s.ld + half;
      __mmask16 columns = lanes16(s.count - half);
      __m512i v[kSide];
      for (int64_t r = 0; r < kSide; ++r) prefetch_row(s.from + (k + kStep + half + r) * s.ld);
#pragma GCC unroll 16
      for (int p = 0; p < kSide; ++p) {
        v[p] = pairs_across(from + 2 * p * s.ld, s.ld, columns, s.depth - k - 2 * p);
      }
      transpose_16x16(v);
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i, group += kLine) _mm512_store_si512(group, v[i]);
    }
  }
}

// Adds the bias to `sums` [32][32] and rounds the results to c. A row of 32 rounded elements is as
// large as a cache line.
DS_TARGET_AVX512_BF16 void store_rounded(const TileJob& job, const float* sums) {
  const __mmask32 mask = lanes32(job.columns);
  const __m512 bias = bias_at(job, 0), bias2 = bias_at(job, kSide);
  for (int64_t i = 0; i < job.rows; ++i) {
    __m512 sum = _mm512_add_ps(_mm512_load_ps(sums + i * kTile), bias);
    __m512 sum2 = _mm512_add_ps(_mm512_load_ps(sums + i * kTile + kSide), bias2);
    _mm512_mask_storeu_epi16(job.c + i * job.ldc, mask, (__m512i)_mm512_cvtne2ps_pbh(sum2, sum));
  }
}

DS_TARGET_AVX512_BF16 void store_wide(const TileJob& job, const float* sums) {
  for (int64_t j = 0; j < job.columns; j += kSide) {
    for (int64_t i = 0; i < job.rows; ++i) {
      _mm512_mask_storeu_ps(job.wide + i * job.ldc + j, lanes16(job.columns - j),
                            _mm512_load_ps(sums + i * kTile + j));
    }
  }
}

// Adds the products of all steps to tiles 0 to 3, which hold the sums of these halves of the (rows,
// columns): (first, first), (first, second), (second, first), (second, second). If a second half of
// rows or columns does not exist, its products are left out. A tile of a or b is loaded for the
// next step as soon as its last product has been issued, so that loads overlap products.
template <bool kSecondRows, bool kSecondColumns>
DS_AMX_INLINE void multiply_steps(const TileJob& job) {
  const std::byte* a = job.a;
  const uint32_t* b = job.b;
  const uint32_t* b2 = b + job.pairs * kSide;
  amx::load<4>(a, kLine);
  amx::load<6>(b, kLine);
  if constexpr (kSecondColumns) amx::load<7>(b2, kLine);
  if constexpr (kSecondRows) amx::load<5>(a + kSide * kLine, kLine);
  for (int64_t left = job.pairs - kSide; left > 0; left -= kSide) {
    a += kTile * kLine;
    b += kSide * kSide;
    b2 += kSide * kSide;
    amx::multiply<0, 4, 6>();
    if constexpr (kSecondColumns) amx::multiply<1, 4, 7>();
    amx::load<4>(a, kLine);
    if constexpr (kSecondRows) amx::multiply<2, 5, 6>();
    amx::load<6>(b, kLine);
    if constexpr (kSecondRows && kSecondColumns) amx::multiply<3, 5, 7>();
    if constexpr (kSecondColumns) amx::load<7>(b2, kLine);
    if constexpr (kSecondRows) amx::load<5>(a + kSide * kLine, kLine);
  }
  amx::multiply<0, 4, 6>();
  if constexpr (kSecondColumns) amx::multiply<1, 4, 7>();
  if constexpr (kSecondRows) amx::multiply<2, 5, 6>();
  if constexpr (kSecondRows && kSecondColumns) amx::multiply<3, 5, 7>();
}

DS_TARGET_AMX void store_sums(float* to, int64_t row) {
  amx::store<0>(to, row);
  amx::store<1>(to + kSide, row);
  amx::store<2>(to + row / 4 * kSide, row);
  amx::store<3>(to + row / 4 * kSide + kSide, row);
}

DS_TARGET_AMX void run(const TileJob& job) {
  if (job.first) {
    amx::zero<0>();
    amx::zero<1>();
    amx::zero<2>();
    amx::zero<3>();
  } else {
    amx::load<0>(job.partial, kPartialRow);
    amx::load<1>(job.partial + kSide, kPartialRow);
    amx::load<2>(job.partial + kPartialHalf, kPartialRow);
    amx::load<3>(job.partial + kPartialHalf + kSide, kPartialRow);
  }
  if (job.rows > kSide) {
    job.columns > kSide ? multiply_steps<true, true>(job) : multiply_steps<true, false>(job);
  } else {
    job.columns > kSide ? multiply_steps<false, true>(job) : multiply_steps<false, false>(job);
  }
  if (!job.last) return store_sums(job.partial, kPartialRow);
  if (job.wide && job.rows == kTile && job.columns == kTile)
    return store_sums(job.wide, job.ldc * 4);
  alignas(64) float sums[kTile * kTile];
  store_sums(sums, kPartialRow);
  job.wide ? store_wide(job, sums) : store_rounded(job, sums);
}

DS_TARGET_AMX void begin() {
  static constexpr amx::Config config;
  amx::configure(config);
}
DS_TARGET_AMX void end() { amx::release(); }

}  // namespace

const Micro& tiles() {
  static constexpr Micro micro{
      .tile_rows = kTile,
      .tile_columns = kTile,
      .step = kStep,
      .most_depth = 768,
      .slab_bytes = 600 << 10,
      .fewest_rows = 256,
      .tasks_per_thread = 2,
      .group_bytes = group_bytes,
      .pack_b_along = pack_b_along,
      .pack_b_across = pack_b_across,
      .pack_a_along = pack_a_along,
      .pack_a_across = pack_a_across,
      .run_stored = nullptr,
      .run_packed = run,
      .begin = begin,
      .end = end,
  };
  return micro;
}

}  // namespace ds::gemm
