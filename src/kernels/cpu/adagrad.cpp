#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adagrad.cpp"
#include <hwy/foreach_target.h>

#include "core/base/group_scalars.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The constants of one step in f32; docs/reference/ops.md fixes the order of operations, so that
// all implementations agree.
struct AdagradStep {
  static constexpr int kStates = 1;
  float grad_scale, decay, rate, eps, initial;

  explicit AdagradStep(const KernelContext& c) {
    const GroupScalars& group = c.scalars.group;
    grad_scale = static_cast<float>(c.scalars.grad_scale);
    decay = static_cast<float>(group.weight_decay);
    eps = static_cast<float>(group.eps);
    rate = static_cast<float>(
        group.lr / (1 + static_cast<double>(c.scalars.updates) * c.attrs.real_or("lr_decay", 0)));
    initial = c.scalars.updates == 0 ? static_cast<float>(c.attrs.real_or("initial", 0)) : 0.0f;
  }
};

HWY_INLINE Elements update(const AdagradStep& s, Vec grad, Elements e) {
  const Lanes d;
  Vec g = hn::Add(hn::Mul(grad, hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.decay), e.p));
  Vec sum = hn::Add(hn::Add(e.first, hn::Set(d, s.initial)), hn::Mul(g, g));
  Vec root = hn::Add(hn::Sqrt(sum), hn::Set(d, s.eps));
  return {hn::Sub(e.p, hn::Div(hn::Mul(hn::Set(d, s.rate), g), root)), sum, e.second};
}

void adagrad(const KernelContext& c) { update_of_types<AdagradStep>(c); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(adagrad);

void add_adagrad(KernelRegistry& registry) {
  add_kernel(registry, "adagrad", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(adagrad)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
