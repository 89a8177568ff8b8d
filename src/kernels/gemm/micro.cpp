#include "kernels/gemm/micro.h"

#include <immintrin.h>

#include <cstring>

namespace ds::gemm {
namespace {

constexpr int kVectors = kTileColumns / 16;

DS_TARGET_AVX512_BF16 inline __m512i broadcast_pair(const std::byte* at) {
  int pair;
  std::memcpy(&pair, at, sizeof pair);  // pairs of an odd leading dimension lie at even addresses only
  return _mm512_set1_epi32(pair);
}

struct Accumulators {
  __m512 v[kTileRows][kVectors];
};

DS_TARGET_AVX512_BF16 inline __attribute__((always_inline)) void multiply_row(Accumulators& sum, int row,
                                                                              const std::byte* a,
                                                                              const __m512i (&b)[kVectors]) {
  __m512i pair = broadcast_pair(a);
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) {
    sum.v[row][j] = _mm512_dpbf16_ps(sum.v[row][j], (__m512bh)pair, (__m512bh)b[j]);
  }
}

DS_TARGET_AVX512_BF16 void store_tile(const TileJob& job, const Accumulators& sum) {
  for (int j = 0; j < kVectors; ++j) {
    int64_t left = job.columns - 16 * j;
    if (left <= 0) return;
    auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
    if (job.wide) {
      for (int i = 0; i < job.rows; ++i) {
        _mm512_mask_storeu_ps(job.wide + i * job.ldc + 16 * j, mask, sum.v[i][j]);
      }
      continue;
    }
    __m512 bias = _mm512_setzero_ps();
    if (job.bias) {
      __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, job.bias + 16 * j));
      bias = _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    }
    for (int i = 0; i < job.rows; ++i) {
      __m256bh narrow = _mm512_cvtneps_pbh(_mm512_add_ps(sum.v[i][j], bias));
      _mm256_mask_storeu_epi16(job.c + i * job.ldc + 16 * j, mask, (__m256i)narrow);
    }
  }
}

template <int kPairStep>
DS_TARGET_AVX512_BF16 inline __attribute__((always_inline)) void run_tile(const TileJob& job) {
  Accumulators sum;
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      sum.v[i][j] =
          job.first ? _mm512_setzero_ps() : _mm512_loadu_ps(job.partial + i * kTileColumns + 16 * j);
    }
  }
  const std::byte *a0 = job.a, *a3 = a0 + 3 * job.a_row, *a6 = a0 + 6 * job.a_row;
  const int64_t row = job.a_row;
  const uint32_t* from = job.b;
  for (int64_t p = 0; p < job.pairs; ++p) {
    const __m512i b[kVectors] = {_mm512_load_si512(from), _mm512_load_si512(from + 16),
                                 _mm512_load_si512(from + 32)};
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
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(job.partial + i * kTileColumns + 16 * j, sum.v[i][j]);
  }
}

}  // namespace

DS_TARGET_AVX512_BF16 void run_tile_direct(const TileJob& job) { run_tile<4>(job); }
DS_TARGET_AVX512_BF16 void run_tile_packed(const TileJob& job) { run_tile<4 * kTileRows>(job); }

}  // namespace ds::gemm
