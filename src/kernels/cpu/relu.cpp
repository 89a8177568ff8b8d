// relu and its gradient, bit-identical to the reference. A NaN becomes 0, as in the reference,
// because NaN > 0 is false.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/relu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = x where x > 0, else 0
template <typename T>
void relu(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  map_all(
      c, y, [](Vec v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(Lanes())), v); }, x);
}

// dx = dy where x > 0, otherwise 0.
template <typename T>
void relu_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  map_all(
      c, dx,
      [](Vec g, Vec v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(Lanes())), g); }, dy,
      x);
}

void add_relu(KernelRegistry& registry) {
  add_by_type(registry, "relu", []<typename T>() { return relu<T>; });
  add_by_type(registry, "relu_dx", []<typename T>() { return relu_dx<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
