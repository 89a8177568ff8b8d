// Sums of squares of granules, bit-identical to the reference. The latency of additions bounds a
// sum in element order, so eight granules are summed side by side.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/granule_norms.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/square_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Returns x as f32: x itself, or a copy in `room`.
HWY_INLINE const float* widened(const float* x, int64_t, float*) { return x; }
template <typename T>
HWY_INLINE const float* widened(const T* x, int64_t count, float* room) {
  map(
      int64_t{0}, count, room, [](Vec v) HWY_ATTR { return v; }, x);
  return room;
}

template <typename T>
void norms_of(const KernelContext& c) {
  const T* grad = c.in[0].as<T>();
  double* out = c.out[0].as<double>();
  int64_t granule = c.in[0].numel() / std::max<int64_t>(c.out[0].numel(), 1);
  for_blocks(c.team, c.out[0].numel(), 8 * kChains, [=](int64_t begin, int64_t end) HWY_ATTR {
    HWY_ALIGN float room[kChains * kSquares];
    int64_t k = begin;
    // Granules of the usual size are summed eight at a time.
    for (; granule == kSquares && k + kChains <= end; k += kChains)
      eight_sums(widened(grad + k * kSquares, kChains * kSquares, room), out + k);
    for (; k < end; ++k) {
      // The sum continues across pieces, so it is in element order however many elements are
      // widened at once.
      double sum = 0;
      for (int64_t at = 0; at < granule; at += kChains * kSquares) {
        int64_t count = std::min(granule - at, kChains * kSquares);
        sum = one_sum(widened(grad + k * granule + at, count, room), count, sum);
      }
      out[k] = sum;
    }
  });
}

void add_granule_norms(KernelRegistry& registry) {
  add_by_type(registry, "granule_norms", []<typename T>() { return norms_of<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
