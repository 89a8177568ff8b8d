#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/granule_norms.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/square_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

void granule_norms(const KernelContext& c) {
  const float* grad = c.in[0].as<float>();
  double* out = c.out[0].as<double>();
  int64_t granule = c.in[0].numel() / std::max<int64_t>(c.out[0].numel(), 1);
  for_blocks(c.team, c.out[0].numel(), 8 * kChains, [=](int64_t begin, int64_t end) HWY_ATTR {
    int64_t k = begin;
    for (; granule == kSquares && k + kChains <= end; k += kChains) eight_sums(grad + k * kSquares, out + k);
    for (; k < end; ++k) out[k] = one_sum(grad + k * granule, granule);
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(granule_norms);

void add_granule_norms(KernelRegistry& registry) {
  add_kernel(registry, "granule_norms", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(granule_norms)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
