// AdamW, bit-identical to the reference. update-inl.h has the loop; this file has the arithmetic of
// one vector. Multiplications and additions are not fused, because the reference does not fuse
// them.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"
#include "kernels/formulas/adam_step.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

HWY_INLINE Elements update(const AdamStep& s, Vec grad, Elements e) {
  const Lanes d;
  Vec p = hn::Mul(e.p, hn::Set(d, s.keep));
  Vec g = hn::Mul(grad, hn::Set(d, s.grad_scale));
  if (s.penalty != 0) g = hn::Add(g, hn::Mul(hn::Set(d, s.penalty), p));
  Vec m = hn::Add(hn::Mul(hn::Set(d, s.beta1), e.first), hn::Mul(hn::Set(d, s.one_beta1), g));
  Vec v = hn::Add(hn::Mul(hn::Set(d, s.beta2), e.second),
                  hn::Mul(hn::Set(d, s.one_beta2), hn::Mul(g, g)));
  Vec root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, s.correction2))), hn::Set(d, s.eps));
  return {hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, s.rate), m), root)), m, v};
}

void adamw(const KernelContext& c) { update_of_types<AdamStep>(c); }

void add_adamw(KernelRegistry& registry) { add_kernel(registry, "adamw", adamw); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
