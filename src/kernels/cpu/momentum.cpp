// The momentum that 1-bit optimizers send, bit-identical to the reference.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/momentum.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/momentum.h"
#include "kernels/formulas/step_factors.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

void momentum(const KernelContext& c) {
  if (c.scalars.skip != 0) return;
  const float* grad = c.in[0].as<float>();
  float* m = c.out[0].as<float>();
  const auto scale = static_cast<float>(momentum_scale(c));
  const StepFactors s(c.scalars);
  auto next = [=](Vec g, Vec held) HWY_ATTR {
    const Lanes d;
    return hn::Add(hn::Mul(hn::Set(d, s.beta1), held),
                   hn::Mul(hn::Set(d, s.one_beta1), hn::Mul(g, hn::Set(d, scale))));
  };
  map_all(c, m, next, grad, m);
}

void add_momentum(KernelRegistry& registry) { add_kernel(registry, "momentum", momentum); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
