// The update of 1-bit Adam after its freeze step, bit-identical to the reference.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/frozen_adam.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/skipped.h"
#include "kernels/formulas/step_factors.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// p = keep p - rate m / (sqrt(v) + eps), in the order of operations that docs/reference/ops.md
// fixes.
struct FrozenStep : StepFactors {
  using StepFactors::StepFactors;
  HWY_INLINE Vec operator()(Vec m, Vec v, Vec p) const {
    const Lanes d;
    Vec root = hn::Add(hn::Sqrt(v), hn::Set(d, eps));
    return hn::Sub(hn::Mul(p, hn::Set(d, keep)), hn::Div(hn::Mul(hn::Set(d, rate), m), root));
  }
};

template <typename T>
void frozen_adam(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float *m = c.in[0].as<float>(), *v = c.in[1].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const FrozenStep step(c.scalars);
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

void add_frozen_adam(KernelRegistry& registry) {
  add_by_type<out_type<1>>(registry, "frozen_adam", []<typename T>() { return frozen_adam<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
