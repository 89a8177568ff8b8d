// SGD with momentum, bit-identical to the reference.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sgd.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"
#include "kernels/formulas/update_steps.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Updates one vector, in the order of operations that docs/reference/ops.md fixes.
HWY_INLINE Elements update(const SgdStep& s, Vec grad, Elements e) {
  const Lanes d;
  Vec momentum = hn::Set(d, s.momentum);
  Vec g = hn::Add(hn::Mul(grad, hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.decay), e.p));
  Vec buffer = hn::Add(hn::Mul(momentum, e.first), hn::Mul(hn::Set(d, s.share), g));
  Vec step = s.nesterov ? hn::Add(g, hn::Mul(momentum, buffer)) : buffer;
  return {hn::Sub(e.p, hn::Mul(hn::Set(d, s.rate), step)), buffer, e.second};
}

void sgd(const KernelContext& c) { update_of_types<SgdStep>(c); }

void add_sgd(KernelRegistry& registry) { add_kernel(registry, "sgd", sgd); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
