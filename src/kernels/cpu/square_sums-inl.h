// Sums of squares in f64 and in element order, compiled once per instruction set. Include after
// foreach_target.h, inside no namespace.
#if defined(DS_KERNELS_CPU_SQUARE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_SQUARE_SUMS_INL_H_
#undef DS_KERNELS_CPU_SQUARE_SUMS_INL_H_
#else
#define DS_KERNELS_CPU_SQUARE_SUMS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The number of elements whose squares are computed together.
constexpr int64_t kSquares = 256;
// The number of sums that are computed side by side. Each sum is a chain of additions in element
// order, and only other chains can hide its latency.
constexpr int64_t kChains = 8;

// squares[e] = x[e]^2 in f64, which is exact.
HWY_INLINE void square(const float* x, double* squares) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  for (int64_t e = 0; e < kSquares; e += static_cast<int64_t>(hn::Lanes(d))) {
    auto wide = hn::PromoteTo(d, hn::LoadU(half, x + e));
    hn::StoreU(hn::Mul(wide, wide), d, squares + e);
  }
}

// sum[j] = the sum of squares of the j-th kSquares elements, in element order in f64. Eight named
// variables, unlike an array, stay in registers.
HWY_INLINE void eight_sums(const float* grad, double* sum) {
  double squares[kChains][kSquares];
  for (int64_t j = 0; j < kChains; ++j) square(grad + j * kSquares, squares[j]);
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  for (int64_t e = 0; e < kSquares; ++e) {
    s0 += squares[0][e];
    s1 += squares[1][e];
    s2 += squares[2][e];
    s3 += squares[3][e];
    s4 += squares[4][e];
    s5 += squares[5][e];
    s6 += squares[6][e];
    s7 += squares[7][e];
  }
  const double sums[kChains] = {s0, s1, s2, s3, s4, s5, s6, s7};
  std::copy(sums, sums + kChains, sum);
}

// Adds the squares of `granule` elements, in order, to `sum`, the sum of the squares of earlier
// elements, and returns the result.
HWY_INLINE double one_sum(const float* grad, int64_t granule, double sum = 0) {
  double squares[kSquares];
  int64_t e = 0;
  for (; e + kSquares <= granule; e += kSquares) {
    square(grad + e, squares);
    for (double s : squares) sum += s;
  }
  for (; e < granule; ++e) sum += static_cast<double>(grad[e]) * static_cast<double>(grad[e]);
  return sum;
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
