#pragma once
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/gemm/micro.h"

// Packing and the bias, shared by the micro-kernels. Everything here needs AVX-512.
namespace ds::gemm {

// Return a mask of the first `count` of 16, or of 32, lanes.
inline __mmask16 lanes16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (count <= 0 ? 0u : (1u << count) - 1));
}
inline __mmask32 lanes32(int64_t count) {
  return static_cast<__mmask32>(count >= 32 ? ~0u : (count <= 0 ? 0u : (1u << count) - 1));
}

// Transposes 16 x 16 words in four rounds: by words, by pairs, and twice by 128-bit lanes.
DS_TARGET_AVX512_BF16 inline __attribute__((always_inline)) void transpose_16x16(__m512i (&v)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// Prefetches the elements of a group for one k, if a is stored across k. The elements for the next
// k are far away, so the hardware prefetcher does not recognize the pattern.
inline void prefetch_row(const bf16* row) {
  _mm_prefetch(row, _MM_HINT_T0);
  _mm_prefetch(row + kGroup - 1, _MM_HINT_T0);
}

// Loads elements k and k + 1 of 16 vectors that are stored across k, as pairs. `from` points to
// element k of the first vector, and `depth` elements exist from k on.
DS_TARGET_AVX512_BF16 inline __attribute__((always_inline)) __m512i pairs_across(const bf16* from,
                                                                                 int64_t ld,
                                                                                 __mmask16 vectors,
                                                                                 int64_t depth) {
  if (depth <= 0) return _mm512_setzero_si512();
  __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vectors, from));
  if (depth == 1) return low;
  __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vectors, from + ld));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Loads 16 elements of job.bias from column j on; they are 0 beyond the tile's columns and without
// a bias.
DS_TARGET_AVX512_BF16 inline __m512 bias_at(const TileJob& job, int64_t j) {
  if (!job.bias) return _mm512_setzero_ps();
  __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes16(job.columns - j), job.bias + j));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

// Packs `width` vectors (a multiple of 8) that are stored along k to words [pair][width]; the words
// of a pair begin `stride` words after those of the one before.
DS_TARGET_AVX512_BF16 inline void pack_panel(const Source& s, int64_t width, int64_t stride,
                                             int64_t pairs, uint32_t* to) {
  for (int64_t j = 0; j < width; j += 16) {
    const int64_t lanes = std::min<int64_t>(16, width - j);
    for (int64_t p = 0; p < pairs; p += 16) {
      __mmask32 mask = lanes32(s.depth - 2 * p);
      __m512i v[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        v[i] = j + i < s.count ? _mm512_maskz_loadu_epi16(mask, s.from + (j + i) * s.ld + 2 * p)
                               : _mm512_setzero_si512();
      }
      transpose_16x16(v);
      int64_t rows = std::min<int64_t>(16, pairs - p);
      uint32_t* out = to + p * stride + j;
      if (rows == 16 && lanes == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * stride, v[i]);
      } else {
        alignas(64) uint32_t words[16][16];
        for (int i = 0; i < 16; ++i) _mm512_store_si512(words[i], v[i]);
        for (int64_t i = 0; i < rows; ++i) std::copy_n(words[i], lanes, out + i * stride);
      }
    }
  }
}

}  // namespace ds::gemm
