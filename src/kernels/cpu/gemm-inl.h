// Small f32 matrix products on packed operands, compiled once per instruction set.
#if defined(DS_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_GEMM_INL_H_
#undef DS_KERNELS_CPU_GEMM_INL_H_
#else
#define DS_KERNELS_CPU_GEMM_INL_H_
#endif

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Registers: kTileRows x 2 accumulators, 2 vectors of b, 1 broadcast of a.
constexpr int64_t kTileRows = hn::MaxLanes(Lanes()) >= 16 ? 8 : 4;

// Columns of one register tile; n of gemm and the rows of b and c are padded to it.
HWY_INLINE int64_t panel() { return 2 * lanes(); }

// Element (i, p) of an operand is data[i * row + p * step].
struct Operand {
  const float* data;
  int64_t row, step;
};

template <int64_t kRows>
HWY_INLINE void gemm_tile(int64_t k, Operand a, const float* b, int64_t ldb, float* c, int64_t ldc,
                          bool add) {
  const Lanes d;
  const int64_t width = lanes();
  Vec left[kRows], right[kRows];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    left[i] = add ? load(c + i * ldc) : hn::Zero(d);
    right[i] = add ? load(c + i * ldc + width) : hn::Zero(d);
  }
  for (int64_t p = 0; p < k; ++p) {
    Vec b0 = load(b + p * ldb), b1 = load(b + p * ldb + width);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      Vec x = hn::Set(d, a.data[i * a.row + p * a.step]);
      left[i] = hn::MulAdd(x, b0, left[i]);
      right[i] = hn::MulAdd(x, b1, right[i]);
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
    store(left[i], c + i * ldc);
    store(right[i], c + i * ldc + width);
  }
}

// c[m,n] = a[m,k] b[k,n] (+ c when add). n is a multiple of panel(). Each element is one chain over k.
HWY_INLINE void gemm(int64_t m, int64_t n, int64_t k, Operand a, const float* b, int64_t ldb, float* c,
                     int64_t ldc, bool add) {
  for (int64_t j = 0; j < n; j += panel()) {
    int64_t i = 0;
    auto at = [&](int64_t row) { return Operand{a.data + row * a.row, a.row, a.step}; };
    for (; i + kTileRows <= m; i += kTileRows) {
      gemm_tile<kTileRows>(k, at(i), b + j, ldb, c + i * ldc + j, ldc, add);
    }
    if (i + 4 <= m) {
      gemm_tile<4>(k, at(i), b + j, ldb, c + i * ldc + j, ldc, add);
      i += 4;
    }
    if (i + 2 <= m) {
      gemm_tile<2>(k, at(i), b + j, ldb, c + i * ldc + j, ldc, add);
      i += 2;
    }
    if (i < m) gemm_tile<1>(k, at(i), b + j, ldb, c + i * ldc + j, ldc, add);
  }
}

// out[rows, padded] = x[rows, columns] * scale as f32, zeros up to `padded`.
template <typename T>
HWY_INLINE void pack_rows(const T* x, int64_t stride, int64_t rows, int64_t columns, float scale, float* out,
                          int64_t padded) {
  Vec factor = hn::Set(Lanes(), scale);
  for (int64_t r = 0; r < rows; ++r) {
    map(
        0, columns, out + r * padded, [=](Vec v) HWY_ATTR { return hn::Mul(v, factor); }, x + r * stride);
    std::fill(out + r * padded + columns, out + (r + 1) * padded, 0.0f);
  }
}

// out[columns, padded] = x[rows, columns]^T as f32, zeros up to `padded`.
template <typename T>
HWY_INLINE void pack_transposed(const T* x, int64_t stride, int64_t rows, int64_t columns, float* out,
                                int64_t padded) {
  constexpr int64_t kStrip = 16;
  for (int64_t r = 0; r < padded; r += kStrip) {
    int64_t strip = std::min(kStrip, padded - r), used = std::clamp<int64_t>(rows - r, 0, strip);
    for (int64_t p = 0; p < columns; ++p) {
      float* to = out + p * padded + r;
      for (int64_t i = 0; i < used; ++i) to[i] = static_cast<float>(x[(r + i) * stride + p]);
      for (int64_t i = used; i < strip; ++i) to[i] = 0.0f;
    }
  }
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
