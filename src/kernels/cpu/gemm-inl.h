// Small f32 matrix products on packed operands, compiled once per instruction set. Callers pack
// blocks that stay in the cache; here a tile of c stays in registers while the products run along
// k. Each element of c is one chain of multiply-adds over k, so its bits do not depend on the tile
// that it is in.
#if defined(DS_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_GEMM_INL_H_
#undef DS_KERNELS_CPU_GEMM_INL_H_
#else
#define DS_KERNELS_CPU_GEMM_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The number of rows of a register tile, which occupies kTileRows x 2 accumulators, 2 vectors of b,
// and 1 broadcast of a. AVX-512 has 32 registers, AVX2 and SSE4 have 16.
constexpr int64_t kTileRows = hn::MaxLanes(Lanes()) >= 16 ? 8 : 4;

// Returns the number of columns of a register tile.
HWY_INLINE int64_t panel() { return std::max<int64_t>(4, 2 * lanes()); }

// A packed operand, whose element (i, p) is data[i * row + p * step].
struct Operand {
  const float* data;
  int64_t row, step;
};

// The Product parameter of gemm() for f32. add() returns sum + x b, and finish() returns the value
// to store.
struct Plain {
  HWY_INLINE Vec add(Vec x, Vec b, Vec sum) const { return hn::MulAdd(x, b, sum); }
  HWY_INLINE Vec finish(Vec sum) const { return sum; }
};

// Computes a tile of kRows rows and two vectors of columns, or one vector if not kWide.
template <int64_t kRows, bool kWide, typename Product>
HWY_INLINE void gemm_tile(int64_t k, Operand a, const float* b, int64_t ldb, float* c, int64_t ldc,
                          bool add, Product product) {
  const Lanes d;
  const int64_t width = lanes();
  Vec left[kRows], right[kRows];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    left[i] = add ? load(c + i * ldc) : hn::Zero(d);
    if constexpr (kWide) right[i] = add ? load(c + i * ldc + width) : hn::Zero(d);
  }
  // One step: two loads of b, kRows broadcasts of a, and 2 kRows multiply-adds.
  for (int64_t p = 0; p < k; ++p) {
    Vec b0 = load(b + p * ldb), b1 = b0;
    if constexpr (kWide) b1 = load(b + p * ldb + width);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      Vec x = hn::Set(d, a.data[i * a.row + p * a.step]);
      left[i] = product.add(x, b0, left[i]);
      if constexpr (kWide) right[i] = product.add(x, b1, right[i]);
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    store(product.finish(left[i]), c + i * ldc);
    if constexpr (kWide) store(product.finish(right[i]), c + i * ldc + width);
  }
}

// Computes the m rows of one panel of columns.
template <bool kWide, typename Product>
HWY_INLINE void gemm_panel(int64_t m, int64_t k, Operand a, const float* b, int64_t ldb, float* c,
                           int64_t ldc, bool add, Product product) {
  int64_t i = 0;
  auto at = [&](int64_t row) { return Operand{a.data + row * a.row, a.row, a.step}; };
  for (; i + kTileRows <= m; i += kTileRows) {
    gemm_tile<kTileRows, kWide>(k, at(i), b, ldb, c + i * ldc, ldc, add, product);
  }
  if (i + 4 <= m) {
    gemm_tile<4, kWide>(k, at(i), b, ldb, c + i * ldc, ldc, add, product);
    i += 4;
  }
  if (i + 2 <= m) {
    gemm_tile<2, kWide>(k, at(i), b, ldb, c + i * ldc, ldc, add, product);
    i += 2;
  }
  if (i < m) gemm_tile<1, kWide>(k, at(i), b, ldb, c + i * ldc, ldc, add, product);
}

// c[m,n] = a[m,k] b[k,n] (+ c if `add`). n is a multiple of lanes().
template <typename Product = Plain>
HWY_INLINE void gemm(int64_t m, int64_t n, int64_t k, Operand a, const float* b, int64_t ldb,
                     float* c, int64_t ldc, bool add, Product product = {}) {
  int64_t j = 0, wide = 2 * lanes();
  for (; j + wide <= n; j += wide) gemm_panel<true>(m, k, a, b + j, ldb, c + j, ldc, add, product);
  if (j < n) gemm_panel<false>(m, k, a, b + j, ldb, c + j, ldc, add, product);
}

// The number of rows that pack_rows() prefetches ahead. In a batch the rows of one head are far
// apart, which hardware prefetchers do not follow.
constexpr int64_t kRowsAhead = 8;

// Prefetches x[rows, columns], which will be packed later.
template <typename T>
HWY_INLINE void prefetch_rows(const T* x, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < columns; k += 64 / static_cast<int64_t>(sizeof(T))) {
      hwy::Prefetch(x + r * stride + k);
    }
  }
}

// out[rows, padded] = x[rows, columns] * scale as f32, with zeros up to `padded`.
template <typename T>
HWY_INLINE void pack_rows(const T* x, int64_t stride, int64_t rows, int64_t columns, float scale,
                          float* out, int64_t padded) {
  Vec factor = hn::Set(Lanes(), scale);
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * stride;
    for (int64_t k = 0; k < columns; k += 64 / static_cast<int64_t>(sizeof(T))) {
      hwy::Prefetch(row + kRowsAhead * stride + k);
    }
    map(
        0, columns, out + r * padded, [=](Vec v) HWY_ATTR { return hn::Mul(v, factor); }, row);
    std::fill(out + r * padded + columns, out + (r + 1) * padded, 0.0f);
  }
}

#if HWY_TARGET == HWY_SCALAR
// Writes the transposed 4 x 4 blocks of four vectors: element b of v_i goes to out[b * stride + i]
// for b < count. If vectors have one element, count is 1.
HWY_INLINE void store_transposed(Vec v0, Vec v1, Vec v2, Vec v3, int64_t count, float* out,
                                 int64_t stride) {
  const float quad[4] = {hn::GetLane(v0), hn::GetLane(v1), hn::GetLane(v2), hn::GetLane(v3)};
  std::copy_n(quad, 4, out + (count - 1) * stride);
}
#else
HWY_INLINE void store_transposed(Vec v0, Vec v1, Vec v2, Vec v3, int64_t count, float* out,
                                 int64_t stride) {
  const Lanes d;
  const hn::FixedTag<float, 4> four;
  Vec low02 = hn::InterleaveLower(d, v0, v2), low13 = hn::InterleaveLower(d, v1, v3);
  Vec high02 = hn::InterleaveUpper(d, v0, v2), high13 = hn::InterleaveUpper(d, v1, v3);
  // Row j of quads has elements j, 4 + j, 8 + j ... of the four vectors.
  HWY_ALIGN float quads[4][hn::MaxLanes(Lanes())];
  hn::Store(hn::InterleaveLower(d, low02, low13), d, quads[0]);
  hn::Store(hn::InterleaveUpper(d, low02, low13), d, quads[1]);
  hn::Store(hn::InterleaveLower(d, high02, high13), d, quads[2]);
  hn::Store(hn::InterleaveUpper(d, high02, high13), d, quads[3]);
  for (int64_t b = 0; b < count; ++b) {
    hn::StoreU(hn::Load(four, quads[b % 4] + b / 4 * 4), four, out + b * stride);
  }
}
#endif

// out[columns, padded] = x[rows, columns]^T as f32, with zeros up to `padded`, a multiple of 4.
// Rows of out are `ld` floats apart.
template <typename T>
HWY_INLINE void pack_transposed(const T* x, int64_t stride, int64_t rows, int64_t columns,
                                float* out, int64_t padded, int64_t ld) {
  for (int64_t r = 0; r < padded; r += 4) {
    for (int64_t p = 0; p < columns; p += lanes()) {
      int64_t count = std::min(lanes(), columns - p);
      Vec v[4];
      for (int64_t i = 0; i < 4; ++i) {
        const T* at = x + (r + i) * stride + p;
        if (r + i >= rows) {
          v[i] = hn::Zero(Lanes());
        } else {
          v[i] = count == lanes() ? load(at) : load_part(at, count);
        }
      }
      store_transposed(v[0], v[1], v[2], v[3], count, out + p * ld + r, ld);
    }
  }
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
