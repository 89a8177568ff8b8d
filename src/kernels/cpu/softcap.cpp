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
void softcap_of(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  float limit = static_cast<float>(c.attrs.real("cap"));
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    Vec cap = hn::Set(Lanes(), limit);
    map(
        begin, end, y, [=](Vec v) HWY_ATTR { return hn::Mul(cap, tanh_of(hn::Div(v, cap))); }, x);
  });
}

void softcap(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { softcap_of<decltype(t)>(c); });
}

// dx = dy (1 - (y / cap)^2)
template <typename T>
void softcap_dx_of(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *y = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  float limit = static_cast<float>(c.attrs.real("cap"));
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    Vec cap = hn::Set(Lanes(), limit), one = hn::Set(Lanes(), 1.0f);
    auto slope = [=](Vec g, Vec v) HWY_ATTR {
      Vec t = hn::Div(v, cap);
      return hn::Mul(g, hn::NegMulAdd(t, t, one));
    };
    map(begin, end, dx, slope, dy, y);
  });
}

void softcap_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { softcap_dx_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(softcap);
HWY_EXPORT(softcap_dx);

void add_softcap(KernelRegistry& registry) {
  add_kernel(registry, "softcap", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(softcap)(c); });
  add_kernel(registry, "softcap_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(softcap_dx)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
