#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sgd.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The constants of one step in f32; docs/reference/ops.md fixes the order of operations, so that
// all implementations agree.
struct SgdStep {
  static constexpr int kStates = 1;
  float grad_scale, momentum, share, decay, rate;
  bool nesterov;

  explicit SgdStep(const KernelContext& c) {
    bool maximize = c.attrs.integer_or("maximize", 0) != 0;
    grad_scale = static_cast<float>(maximize ? -c.scalars.grad_scale : c.scalars.grad_scale);
    momentum = static_cast<float>(c.scalars.group.momentum);
    decay = static_cast<float>(c.scalars.group.weight_decay);
    rate = static_cast<float>(c.scalars.group.lr);
    nesterov = c.attrs.integer("nesterov") != 0;
    // The first update fills the buffer; without momentum there is nothing to dampen.
    bool damped = c.scalars.updates > 0 && momentum != 0;
    share = damped ? static_cast<float>(1 - c.attrs.real_or("dampening", 0)) : 1.0f;
  }
};

HWY_INLINE Elements update(const SgdStep& s, Vec grad, Elements e) {
  const Lanes d;
  Vec momentum = hn::Set(d, s.momentum);
  Vec g = hn::Add(hn::Mul(grad, hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.decay), e.p));
  Vec buffer = hn::Add(hn::Mul(momentum, e.first), hn::Mul(hn::Set(d, s.share), g));
  Vec step = s.nesterov ? hn::Add(g, hn::Mul(momentum, buffer)) : buffer;
  return {hn::Sub(e.p, hn::Mul(hn::Set(d, s.rate), step)), buffer, e.second};
}

void sgd(const KernelContext& c) { update_of_types<SgdStep>(c); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(sgd);

void add_sgd(KernelRegistry& registry) {
  add_kernel(registry, "sgd", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(sgd)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
