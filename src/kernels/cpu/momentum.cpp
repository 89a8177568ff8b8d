#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/momentum.cpp"
#include <hwy/foreach_target.h>

#include "core/base/group_scalars.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/momentum.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

void momentum(const KernelContext& c) {
  if (c.scalars.skip != 0) return;
  const float* grad = c.in[0].as<float>();
  float* m = c.out[0].as<float>();
  const auto scale = static_cast<float>(momentum_scale(c));
  const auto b1 = static_cast<float>(c.scalars.group.beta1);
  const auto one_b1 = static_cast<float>(1 - c.scalars.group.beta1);
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    auto next = [=](Vec g, Vec held) HWY_ATTR {
      return hn::Add(hn::Mul(hn::Set(d, b1), held),
                     hn::Mul(hn::Set(d, one_b1), hn::Mul(g, hn::Set(d, scale))));
    };
    map(begin, end, m, next, grad, static_cast<const float*>(m));
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(momentum);

void add_momentum(KernelRegistry& registry) {
  add_kernel(registry, "momentum", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(momentum)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
