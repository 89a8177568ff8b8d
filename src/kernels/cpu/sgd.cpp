#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sgd.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The constants of one step in f32; docs/reference/ops.md fixes the order of operations, so that all
// implementations agree.
struct SgdStep {
  float grad_scale, momentum, decay, rate;
  bool nesterov;

  explicit SgdStep(const KernelContext& c) {
    grad_scale = static_cast<float>(c.scalars.grad_scale);
    momentum = static_cast<float>(c.scalars.group.momentum);
    decay = static_cast<float>(c.scalars.group.weight_decay);
    rate = static_cast<float>(c.scalars.group.lr);
    nesterov = c.attrs.integer("nesterov") != 0;
  }
};

struct SgdElement {
  Vec p, buffer;
};

HWY_INLINE SgdElement sgd_update(const SgdStep& s, Vec grad, SgdElement e) {
  const Lanes d;
  Vec momentum = hn::Set(d, s.momentum);
  Vec g = hn::Add(hn::Mul(grad, hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.decay), e.p));
  Vec buffer = hn::Add(hn::Mul(momentum, e.buffer), g);
  Vec step = s.nesterov ? hn::Add(g, hn::Mul(momentum, buffer)) : buffer;
  return {hn::Sub(e.p, hn::Mul(hn::Set(d, s.rate), step)), buffer};
}

template <typename T>
void sgd_of(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* grad = c.in[0].as<float>();
  float *master = c.out[0].as<float>(), *buffer = c.out[1].as<float>();
  T* param = c.out[2].as<T>();
  const SgdStep step(c);
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    int64_t e = begin, width = lanes();
    for (; e + width <= end; e += width) {
      SgdElement next = sgd_update(step, load(grad + e), {load(master + e), load(buffer + e)});
      store(next.p, master + e);
      store(next.buffer, buffer + e);
      store(next.p, param + e);
    }
    if (int64_t left = end - e; left > 0) {
      SgdElement next = sgd_update(step, load_part(grad + e, left),
                                   {load_part(master + e, left), load_part(buffer + e, left)});
      store_part(next.p, master + e, left);
      store_part(next.buffer, buffer + e, left);
      store_part(next.p, param + e, left);
    }
  });
}

void sgd(const KernelContext& c) {
  by_type(c.out[2].dtype, [&](auto t) { sgd_of<decltype(t)>(c); });
}

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
