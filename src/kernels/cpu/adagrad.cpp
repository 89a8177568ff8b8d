// Adagrad, bit-identical to the reference.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adagrad.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"
#include "kernels/formulas/update_steps.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Updates one vector, in the order of operations that docs/reference/ops.md fixes.
HWY_INLINE Elements update(const AdagradStep& s, Vec grad, Elements e) {
  const Lanes d;
  Vec g = hn::Add(hn::Mul(grad, hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.decay), e.p));
  Vec sum = hn::Add(hn::Add(e.first, hn::Set(d, s.initial)), hn::Mul(g, g));
  Vec root = hn::Add(hn::Sqrt(sum), hn::Set(d, s.eps));
  return {hn::Sub(e.p, hn::Div(hn::Mul(hn::Set(d, s.rate), g), root)), sum, e.second};
}

void adagrad(const KernelContext& c) { update_of_types<AdagradStep>(c); }

void add_adagrad(KernelRegistry& registry) { add_kernel(registry, "adagrad", adagrad); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
