#include <cmath>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "core/base/group_scalars.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Kingma and Ba, "Adam" (2015); decoupled decay: Loshchilov and Hutter (2019). The constants of one step, in
// f32; docs/reference/ops.md fixes how each is rounded and the order of operations, so that all agree.
struct AdamStep {
  static constexpr int kStates = 2;
  float grad_scale, beta1, one_beta1, beta2, one_beta2, correction1, correction2, rate, eps, decay, penalty;

  explicit AdamStep(const KernelContext& c) {
    const GroupScalars& group = c.scalars.group;
    double wd = group.weight_decay;
    double lr = c.attrs.integer_or("own_rate", 0) != 0 ? group.adam_lr : group.lr;
    bool l2 = c.attrs.integer("l2") != 0;
    grad_scale = static_cast<float>(c.scalars.grad_scale);
    beta1 = static_cast<float>(group.beta1);
    one_beta1 = static_cast<float>(1 - group.beta1);
    beta2 = static_cast<float>(group.beta2);
    one_beta2 = static_cast<float>(1 - group.beta2);
    double t = static_cast<double>(c.scalars.updates + 1);
    bool corrected = c.attrs.integer_or("bias_correction", 1) != 0;
    correction1 = corrected ? static_cast<float>(1 - std::pow(group.beta1, t)) : 1.0f;
    correction2 = corrected ? static_cast<float>(1 - std::pow(group.beta2, t)) : 1.0f;
    rate = static_cast<float>(lr);
    eps = static_cast<float>(group.eps);
    decay = l2 ? 1.0f : static_cast<float>(1 - lr * wd);
    penalty = l2 ? static_cast<float>(wd) : 0.0f;
  }
};

HWY_INLINE Elements update(const AdamStep& s, Vec grad, Elements e) {
  const Lanes d;
  Vec p = hn::Mul(e.p, hn::Set(d, s.decay));
  Vec g = hn::Add(hn::Mul(grad, hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.penalty), p));
  Vec m = hn::Add(hn::Mul(hn::Set(d, s.beta1), e.first), hn::Mul(hn::Set(d, s.one_beta1), g));
  Vec v = hn::Add(hn::Mul(hn::Set(d, s.beta2), e.second), hn::Mul(hn::Set(d, s.one_beta2), hn::Mul(g, g)));
  Vec step = hn::Mul(hn::Set(d, s.rate), hn::Div(m, hn::Set(d, s.correction1)));
  Vec root = hn::Add(hn::Sqrt(hn::Div(v, hn::Set(d, s.correction2))), hn::Set(d, s.eps));
  return {hn::Sub(p, hn::Div(step, root)), m, v};
}

void adamw(const KernelContext& c) { update_of_types<AdamStep>(c); }

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
