#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lion.cpp"
#include <hwy/foreach_target.h>

#include "core/base/group_scalars.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The constants of one step in f32; docs/reference/ops.md fixes the order of operations, so that
// all implementations agree.
struct LionStep {
  static constexpr int kStates = 1;
  float grad_scale, beta1, one_beta1, beta2, one_beta2, keep, rate;

  explicit LionStep(const KernelContext& c) {
    const GroupScalars& group = c.scalars.group;
    grad_scale = static_cast<float>(c.scalars.grad_scale);
    beta1 = static_cast<float>(group.beta1);
    one_beta1 = static_cast<float>(1 - group.beta1);
    beta2 = static_cast<float>(group.beta2);
    one_beta2 = static_cast<float>(1 - group.beta2);
    keep = static_cast<float>(1 - group.lr * group.weight_decay);
    rate = static_cast<float>(group.lr);
  }
};

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

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(lion);

void add_lion(KernelRegistry& registry) {
  add_kernel(registry, "lion", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(lion)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
