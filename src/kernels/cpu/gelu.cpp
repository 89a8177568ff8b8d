#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

constexpr float kTwoScale = 2 * 0.7978845608028654;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715f;
// Beyond this |x| both logistic(2u) and its slope are constants in f32.
constexpr float kFlat = 16.0f;

// logistic(2 u), u = sqrt(2/pi) (x + 0.044715 x^3); |x| <= kFlat. (1 + tanh(u)) / 2 without its cancellation:
// relative error below 5 units in the last place.
HWY_INLINE Vec gate(Vec x, Vec xx) {
  const Lanes d;
  Vec inner = hn::MulAdd(hn::Mul(hn::Set(d, kCubic), xx), x, x);
  Vec e = exp(hn::Mul(hn::Set(d, -kTwoScale), inner));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(e, hn::Set(d, 1.0f)));
}

HWY_INLINE Vec flatten(Vec x) {
  const Lanes d;
  return hn::Min(hn::Max(x, hn::Set(d, -kFlat)), hn::Set(d, kFlat));
}

// y = 0.5 x (1 + tanh(u)) = x logistic(2u)
template <typename T>
void gelu_of(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, y,
        [](Vec v) HWY_ATTR {
          Vec flat = flatten(v);
          return hn::Mul(v, gate(flat, hn::Mul(flat, flat)));
        },
        x);
  });
}

void gelu(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { gelu_of<decltype(t)>(c); });
}

// With s = logistic(2u): dx = dy (s + x s (1 - s) 2u'), u' = sqrt(2/pi) (1 + 3 0.044715 x^2)
template <typename T>
void gelu_dx_of(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, dx,
        [](Vec g, Vec v) HWY_ATTR {
          const Lanes d;
          Vec flat = flatten(v), xx = hn::Mul(flat, flat), s = gate(flat, xx);
          Vec slope = hn::MulAdd(hn::Set(d, 3 * kCubic * kTwoScale), xx, hn::Set(d, kTwoScale));
          Vec bend = hn::Mul(hn::Mul(v, s), hn::Sub(hn::Set(d, 1.0f), s));
          return hn::Mul(g, hn::MulAdd(bend, slope, s));
        },
        dy, x);
  });
}

void gelu_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { gelu_dx_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(gelu);
HWY_EXPORT(gelu_dx);

void add_gelu(KernelRegistry& registry) {
  add_kernel(registry, "gelu", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(gelu)(c); });
  add_kernel(registry, "gelu_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(gelu_dx)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
