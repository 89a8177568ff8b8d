// The sum over ranks, compiled once per instruction set. Include after foreach_target.h, inside no
// namespace.
#if defined(DS_KERNELS_CPU_RANK_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_RANK_SUM_INL_H_
#undef DS_KERNELS_CPU_RANK_SUM_INL_H_
#else
#define DS_KERNELS_CPU_RANK_SUM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/program/granules.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

constexpr int64_t kRankSums = 16;
constexpr int64_t kMostSummedRanks = int64_t{1} << (kRankSums - 1);

// y = the sum over all ranks of `count` elements. There must be fewer than kMostSummedRanks ranks
// and at most kGranule elements. load_rank(r, to) writes the elements of rank r as f32, in whole
// vectors. Partial sums are kept like the digits of a binary counter over ranks: neighbours are
// added first, and an odd last rank is carried up, which is the order of all-reduces.
template <typename Load>
HWY_INLINE void sum_over_ranks(int64_t ranks, int64_t count, const Load& load_rank, float* y) {
  HWY_ALIGN float row[kRankSums][kGranule];
  int64_t rows = 0;
  auto join = [&]() HWY_ATTR {
    float *a = row[rows - 2], *b = row[rows - 1];
    for (int64_t e = 0; e < count; e += lanes()) store(hn::Add(load(a + e), load(b + e)), a + e);
    --rows;
  };
  for (int64_t r = 0; r < ranks; ++r) {
    load_rank(r, row[rows++]);
    // As in the carry of a binary counter, the number of joins is the number of trailing zero bits
    // of r + 1.
    for (int64_t left = r + 1; left % 2 == 0; left /= 2) join();
  }
  while (rows > 1) join();
  std::copy_n(row[0], count, y);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
