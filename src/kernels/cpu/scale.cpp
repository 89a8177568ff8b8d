#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scale.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = x factor
template <typename T>
void scale_of(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  float factor = static_cast<float>(c.attrs.real("factor"));
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    Vec by = hn::Set(Lanes(), factor);
    map(
        begin, end, y, [=](Vec v) HWY_ATTR { return hn::Mul(v, by); }, x);
  });
}

void scale(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { scale_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(scale);

void add_scale(KernelRegistry& registry) {
  add_kernel(registry, "scale", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(scale)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
