#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "kernels/adam_step.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

struct AdamUpdate : AdamStep {
  static constexpr int kStates = 2;
  using AdamStep::AdamStep;
};

HWY_INLINE Elements update(const AdamUpdate& s, Vec grad, Elements e) {
  const Lanes d;
  Vec p = hn::Mul(e.p, hn::Set(d, s.decay));
  Vec g = hn::Mul(grad, hn::Set(d, s.grad_scale));
  if (s.penalty != 0) g = hn::Add(g, hn::Mul(hn::Set(d, s.penalty), p));
  Vec m = hn::Add(hn::Mul(hn::Set(d, s.beta1), e.first), hn::Mul(hn::Set(d, s.one_beta1), g));
  Vec v = hn::Add(hn::Mul(hn::Set(d, s.beta2), e.second),
                  hn::Mul(hn::Set(d, s.one_beta2), hn::Mul(g, g)));
  Vec root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, s.correction2))), hn::Set(d, s.eps));
  return {hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, s.rate), m), root)), m, v};
}

void adamw(const KernelContext& c) { update_of_types<AdamUpdate>(c); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(adamw);

void add_adamw(KernelRegistry& registry) {
  add_kernel(registry, "adamw", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(adamw)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
