#include "kernels/gemm/pack.h"

#include <immintrin.h>

#include <algorithm>

#include "kernels/gemm/micro.h"

namespace ds::gemm {
namespace {

// The first `count` of 16, or of 32, lanes.
__mmask16 lanes16(int64_t count) { return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1); }
__mmask32 lanes32(int64_t count) {
  return static_cast<__mmask32>(count >= 32 ? ~0u : (count <= 0 ? 0u : (1u << count) - 1));
}

// Rows lie far apart, so the hardware does not see them come.
constexpr int64_t kRowsAhead = 32;

void prefetch_row(const bf16* row) {
  _mm_prefetch(row, _MM_HINT_T0);
  _mm_prefetch(row + kTileRows * 4 - 1, _MM_HINT_T0);
}

// v[i] word j <-> v[j] word i.
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

// 16 columns of rows k and k + 1, as pairs; `second` 0 when there is no row k + 1.
DS_TARGET_AVX512_BF16 inline __m512i interleave(const bf16* row, int64_t ld, __mmask16 columns, bool second) {
  __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, row));
  if (!second) return low;
  __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, row + ld));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

}  // namespace

DS_TARGET_AVX512_BF16 void pack_along(const bf16* from, int64_t ld, int64_t count, int64_t depth,
                                      int64_t width, uint32_t* to) {
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t j = 0; j < width; j += 16) {
    const int64_t lanes = std::min<int64_t>(16, width - j);
    for (int64_t p = 0; p < pairs; p += 16) {
      __mmask32 mask = lanes32(depth - 2 * p);
      __m512i v[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        v[i] = j + i < count ? _mm512_maskz_loadu_epi16(mask, from + (j + i) * ld + 2 * p)
                             : _mm512_setzero_si512();
      }
      transpose_16x16(v);
      int64_t rows = std::min<int64_t>(16, pairs - p);
      uint32_t* out = to + p * width + j;
      if (rows == 16 && lanes == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * width, v[i]);
      } else {
        alignas(64) uint32_t words[16][16];
        for (int i = 0; i < 16; ++i) _mm512_store_si512(words[i], v[i]);
        for (int64_t i = 0; i < rows; ++i) std::copy_n(words[i], lanes, out + i * width);
      }
    }
  }
}

DS_TARGET_AVX512_BF16 void pack_across_panels(const bf16* from, int64_t ld, int64_t count, int64_t depth,
                                              uint32_t* to) {
  const int64_t panel = (depth + 1) / 2 * kTileColumns;
  const int64_t whole = count / kTileColumns * kTileColumns;
  for (int64_t k = 0; k < depth; k += 2, from += 2 * ld, to += kTileColumns) {
    const bool second = k + 1 < depth;
    uint32_t* out = to;
    for (int64_t j = 0; j < whole; j += kTileColumns, out += panel) {
#pragma GCC unroll 3
      for (int i = 0; i < kTileColumns; i += 16) {
        _mm512_store_si512(out + i, interleave(from + j + i, ld, lanes16(16), second));
      }
    }
    if (whole == count) continue;
    for (int i = 0; i < kTileColumns; i += 16) {
      __mmask16 mask = lanes16(std::max<int64_t>(0, count - whole - i));
      _mm512_store_si512(out + i, interleave(from + whole + i, ld, mask, second));
    }
  }
}

DS_TARGET_AVX512_BF16 void pack_across_4x8(const bf16* from, int64_t ld, int64_t count, int64_t depth,
                                           uint32_t* to) {
  const int64_t panel = (depth + 1) / 2 * kTileRows;
  const __mmask16 first = lanes16(count), second = lanes16(std::max<int64_t>(0, count - 16));
  for (int64_t k = 0; k < depth; k += 2, from += 2 * ld, to += kTileRows) {
    prefetch_row(from + kRowsAhead * ld);
    prefetch_row(from + (kRowsAhead + 1) * ld);
    __m512i low = interleave(from, ld, first, k + 1 < depth);
    __m512i high = interleave(from + 16, ld, second, k + 1 < depth);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + panel), _mm512_extracti64x4_epi64(low, 1));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * panel), _mm512_castsi512_si256(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 3 * panel), _mm512_extracti64x4_epi64(high, 1));
  }
}

}  // namespace ds::gemm
