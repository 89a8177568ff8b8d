// The soft cap of logits and its gradient. tanh_of() does not cancel near 0.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softcap.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = cap tanh(x / cap)
template <typename T>
void softcap(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  float limit = static_cast<float>(c.attrs.real("cap"));
  auto capped = [=](Vec v) HWY_ATTR {
    Vec cap = hn::Set(Lanes(), limit);
    return hn::Mul(cap, tanh_of(hn::Div(v, cap)));
  };
  map_all(c, y, capped, x);
}

// dx = dy (1 - (y / cap)^2)
template <typename T>
void softcap_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *y = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  float limit = static_cast<float>(c.attrs.real("cap"));
  auto slope = [=](Vec g, Vec v) HWY_ATTR {
    Vec t = hn::Div(v, hn::Set(Lanes(), limit));
    return hn::Mul(g, hn::NegMulAdd(t, t, hn::Set(Lanes(), 1.0f)));
  };
  map_all(c, dx, slope, dy, y);
}

void add_softcap(KernelRegistry& registry) {
  add_by_type(registry, "softcap", []<typename T>() { return softcap<T>; });
  add_by_type(registry, "softcap_dx", []<typename T>() { return softcap_dx<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
