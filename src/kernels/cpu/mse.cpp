// The gradient of the mean squared error. The forward sum is sequential by definition and is left
// to the reference.
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
void mse_dx(const KernelContext& c) {
  const T *x = c.in[1].as<T>(), *target = c.in[2].as<T>();
  T* dx = c.out[0].as<T>();
  float scale = 2 * c.in[0].as<float>()[0] / static_cast<float>(c.in[1].numel());
  map_all(
      c, dx, [=](Vec u, Vec v) HWY_ATTR { return hn::Mul(hn::Set(Lanes(), scale), hn::Sub(u, v)); },
      x, target);
}

void add_mse(KernelRegistry& registry) {
  add_by_type<in_type<1>>(registry, "mse_dx", []<typename T>() { return mse_dx<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
