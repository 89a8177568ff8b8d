// Multiplies a tensor by a constant, bit-identical to the reference.
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
void scale(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  float factor = static_cast<float>(c.attrs.real("factor"));
  map_all(
      c, y, [=](Vec v) HWY_ATTR { return hn::Mul(v, hn::Set(Lanes(), factor)); }, x);
}

void add_scale(KernelRegistry& registry) {
  add_by_type(registry, "scale", []<typename T>() { return scale<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
