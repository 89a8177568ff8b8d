#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/frozen_adam.cpp"
#include <hwy/foreach_target.h>

#include "core/base/group_scalars.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The constants of one step in f32; docs/reference/ops.md fixes the order of operations, so that
// all implementations agree.
struct FrozenStep {
  float rate, eps, decay;

  explicit FrozenStep(const GroupScalars& group)
      : rate(static_cast<float>(group.lr)),
        eps(static_cast<float>(group.eps)),
        decay(static_cast<float>(1 - group.lr * group.weight_decay)) {}

  HWY_INLINE Vec operator()(Vec m, Vec v, Vec p) const {
    const Lanes d;
    Vec root = hn::Add(hn::Sqrt(v), hn::Set(d, eps));
    return hn::Sub(hn::Mul(p, hn::Set(d, decay)), hn::Div(hn::Mul(hn::Set(d, rate), m), root));
  }
};

template <typename T>
void frozen_adam_of(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float *m = c.in[0].as<float>(), *v = c.in[1].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const FrozenStep step(c.scalars.group);
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    int64_t e = begin, width = lanes();
    for (; e + width <= end; e += width) {
      Vec p = step(load(m + e), load(v + e), load(master + e));
      store(p, master + e);
      store(p, param + e);
    }
    if (int64_t left = end - e; left > 0) {
      Vec p = step(load_part(m + e, left), load_part(v + e, left), load_part(master + e, left));
      store_part(p, master + e, left);
      store_part(p, param + e, left);
    }
  });
}

void frozen_adam(const KernelContext& c) {
  by_type(c.out[1].dtype, [&](auto t) { frozen_adam_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(frozen_adam);

void add_frozen_adam(KernelRegistry& registry) {
  add_kernel(registry, "frozen_adam", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(frozen_adam)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
