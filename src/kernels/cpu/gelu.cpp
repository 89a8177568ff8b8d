#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

constexpr double kTwoScale = 2 * 0.7978845608028654;  // 2 sqrt(2 / pi)
constexpr double kCubic = 0.044715;
// Beyond this |x| logistic(2u) is 1, or below 2^-111: the same in f32.
constexpr float kFlat = 9.5f;

// x as far as logistic(2u) changes; NaN stays NaN (x86: the second operand wins).
HWY_INLINE Vec flatten(Vec x) {
  const Lanes d;
  return hn::Min(hn::Set(d, kFlat), hn::Max(hn::Set(d, -kFlat), x));
}

// logistic(2u) = (1 + tanh(u)) / 2, u = sqrt(2/pi) (x + 0.044715 x^3), of a flattened x: no cancellation for
// negative x, but u's rounding counts 2u times.
HWY_INLINE Vec gate(Vec x, Vec xx) {
  const Lanes d;
  const Vec one = hn::Set(d, 1.0f);
  Vec scale = hn::MulAdd(xx, hn::Set(d, static_cast<float>(-kTwoScale * kLog2E * kCubic)),
                         hn::Set(d, static_cast<float>(-kTwoScale * kLog2E)));
  return hn::Div(one, hn::Add(exp2_bounded(hn::Mul(x, scale)), one));
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
          return hn::Mul(hn::Max(hn::Set(Lanes(), -kFlat), v), gate(flat, hn::Mul(flat, flat)));
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
          Vec slope = hn::MulAdd(xx, hn::Set(d, static_cast<float>(3 * kCubic * kTwoScale)),
                                 hn::Set(d, static_cast<float>(kTwoScale)));
          Vec bend = hn::Mul(hn::Mul(flat, s), hn::Sub(hn::Set(d, 1.0f), s));
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
