// The product of two tensors, element by element, bit-identical to the reference.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mul.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = a b
template <typename T>
void mul(const KernelContext& c) {
  const T *a = c.in[0].as<T>(), *b = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  map_all(
      c, y, [](Vec u, Vec v) HWY_ATTR { return hn::Mul(u, v); }, a, b);
}

void add_mul(KernelRegistry& registry) {
  add_by_type(registry, "mul", []<typename T>() { return mul<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
