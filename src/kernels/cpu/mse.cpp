#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mse.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// dx = 2 dloss (x - target) / count
template <typename T>
void mse_dx_of(const KernelContext& c) {
  const T *x = c.in[1].as<T>(), *target = c.in[2].as<T>();
  T* dx = c.out[0].as<T>();
  float scale = 2 * c.in[0].as<float>()[0] / static_cast<float>(c.in[1].numel());
  for_blocks(c.team, c.in[1].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, dx,
        [=](Vec u, Vec v) HWY_ATTR { return hn::Mul(hn::Set(Lanes(), scale), hn::Sub(u, v)); }, x,
        target);
  });
}

void mse_dx(const KernelContext& c) {
  by_type(c.in[1].dtype, [&](auto t) { mse_dx_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(mse_dx);

void add_mse(KernelRegistry& registry) {
  add_kernel(registry, "mse_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(mse_dx)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
