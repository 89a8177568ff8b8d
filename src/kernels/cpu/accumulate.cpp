// Adds the gradient of a micro-step to the sum of the step, bit-identical to the reference.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/accumulate.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// acc = acc + x if beta is 1, or acc = x, without reading acc, if beta is 0. The result is computed
// in f32 and rounded to the type of acc.
template <typename T, typename A>
void accumulate_of(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  A* acc = c.out[0].as<A>();
  bool keep = c.attrs.real("beta") != 0;
  if (keep) {
    map_all(
        c, acc, [](Vec a, Vec v) HWY_ATTR { return hn::Add(a, v); }, acc, x);
  } else {
    map_all(
        c, acc, [](Vec v) HWY_ATTR { return v; }, x);
  }
}

void accumulate(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    by_type(c.out[0].dtype, [&](auto a) { accumulate_of<decltype(t), decltype(a)>(c); });
  });
}

void add_accumulate(KernelRegistry& registry) { add_kernel(registry, "accumulate", accumulate); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
