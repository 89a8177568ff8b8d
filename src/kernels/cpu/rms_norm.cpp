#include <cmath>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sum_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The weight of a run is w, or w + 1: `offset` as a number that is added.
float offset_of(const KernelContext& c) {
  return static_cast<float>(c.attrs.integer_or("offset", 0));
}

// y = x rstd w, rstd = 1 / sqrt(mean of x^2 + eps), of each run of w's width
template <typename T>
void rms_norm_of(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  float* rstds = c.out[1].as<float>();
  int64_t width = c.in[1].dims[0], runs = c.in[0].numel() / width;
  float eps = static_cast<float>(c.attrs.real("eps")), count = static_cast<float>(width),
        offset = offset_of(c);
  for_blocks(c.team, runs, rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
    Vec shift = hn::Set(Lanes(), offset);
    for (int64_t r = begin; r < end; ++r) {
      const T* run = x + r * width;
      float squares = sum_of(
          width, [](Vec v) HWY_ATTR { return hn::Mul(v, v); }, run);
      float rstd = 1 / std::sqrt(squares / count + eps);
      Vec scale = hn::Set(Lanes(), rstd);
      auto normal = [=](Vec v, Vec weight)
                        HWY_ATTR { return hn::Mul(hn::Mul(v, scale), hn::Add(weight, shift)); };
      map(0, width, y + r * width, normal, run, w);
      rstds[r] = rstd;
    }
  });
}

void rms_norm(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { rms_norm_of<decltype(t)>(c); });
}

// With g = dy w and h = x rstd: dx = rstd (g - h mean(g h))
template <typename T>
void rms_norm_dx_of(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>(), *w = c.in[2].as<T>();
  const float* rstds = c.in[3].as<float>();
  T* dx = c.out[0].as<T>();
  int64_t width = c.in[2].dims[0], runs = c.in[0].numel() / width;
  float count = static_cast<float>(width), offset = offset_of(c);
  for_blocks(c.team, runs, rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    Vec shift = hn::Set(d, offset);
    for (int64_t r = begin; r < end; ++r) {
      const T *gradient = dy + r * width, *run = x + r * width;
      Vec scale = hn::Set(d, rstds[r]);
      auto product = [=](Vec g, Vec weight, Vec v) HWY_ATTR {
        return hn::Mul(hn::Mul(g, hn::Add(weight, shift)), hn::Mul(v, scale));
      };
      Vec mean = hn::Set(d, sum_of(width, product, gradient, w, run) / count);
      auto result = [=](Vec g, Vec weight, Vec v) HWY_ATTR {
        Vec h = hn::Mul(v, scale);
        return hn::Mul(scale, hn::NegMulAdd(h, mean, hn::Mul(g, hn::Add(weight, shift))));
      };
      map(0, width, dx + r * width, result, gradient, w, run);
    }
  });
}

void rms_norm_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { rms_norm_dx_of<decltype(t)>(c); });
}

// dw = sum over runs of dy x rstd
template <typename T>
void rms_norm_dw_of(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  const float* rstds = c.in[2].as<float>();
  int64_t width = c.out[0].dims[0];
  T* none = nullptr;
  auto weight = [=](int64_t r, Vec g, Vec v)
                    HWY_ATTR { return hn::Mul(g, hn::Mul(v, hn::Set(Lanes(), rstds[r]))); };
  auto nothing = [](int64_t, Vec g, Vec) HWY_ATTR { return g; };
  sum_rows(c.team, c.in[0].numel() / width, width, c.out[0].as<T>(), none, weight, nothing, dy, x);
}

void rms_norm_dw(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { rms_norm_dw_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(rms_norm);
HWY_EXPORT(rms_norm_dx);
HWY_EXPORT(rms_norm_dw);

void add_rms_norm(KernelRegistry& registry) {
  add_kernel(registry, "rms_norm", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(rms_norm)(c);
  });
  add_kernel(registry, "rms_norm_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(rms_norm_dx)(c);
  });
  add_kernel(registry, "rms_norm_dw", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(rms_norm_dw)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
