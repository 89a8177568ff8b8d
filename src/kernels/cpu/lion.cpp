// Lion, bit-identical to the reference.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lion.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"
#include "kernels/formulas/update_steps.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Updates one vector. The step is the learning rate with the sign of the direction.
HWY_INLINE Elements update(const LionStep& s, Vec grad, Elements e) {
  const Lanes d;
  Vec g = hn::Mul(grad, hn::Set(d, s.grad_scale));
  Vec direction =
      hn::Add(hn::Mul(hn::Set(d, s.beta1), e.first), hn::Mul(hn::Set(d, s.one_beta1), g));
  Vec step = hn::CopySign(hn::Set(d, s.rate), direction);
  Vec m = hn::Add(hn::Mul(hn::Set(d, s.beta2), e.first), hn::Mul(hn::Set(d, s.one_beta2), g));
  return {hn::Sub(hn::Mul(e.p, hn::Set(d, s.keep)), step), m, e.second};
}

void lion(const KernelContext& c) { update_of_types<LionStep>(c); }

void add_lion(KernelRegistry& registry) { add_kernel(registry, "lion", lion); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
