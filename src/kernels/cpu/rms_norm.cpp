// Root mean square normalization and its gradients, over runs as long as the weight.
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

// Returns attribute `offset`, the number that is added to each element of w.
float offset_of(const KernelContext& c) {
  return static_cast<float>(c.attrs.integer_or("offset", 0));
}

// y = x rstd (w + offset), where rstd = 1 / sqrt(mean of x^2 + eps) over each run as long as w.
template <typename T>
void rms_norm(const KernelContext& c) {
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
      // RMS norm has no mean to subtract, so rstd needs only one pass over the run.
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

// With g = dy (w + offset) and h = x rstd: dx = rstd (g - h mean(g h)).
template <typename T>
void rms_norm_dx(const KernelContext& c) {
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

// dw = the sum over runs of dy x rstd.
template <typename T>
void rms_norm_dw(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  const float* rstds = c.in[2].as<float>();
  int64_t width = c.out[0].dims[0];
  T* none = nullptr;
  auto weight = [=](int64_t r, Vec g, Vec v)
                    HWY_ATTR { return hn::Mul(g, hn::Mul(v, hn::Set(Lanes(), rstds[r]))); };
  auto nothing = [](int64_t, Vec g, Vec) HWY_ATTR { return g; };
  sum_rows(c.team, c.in[0].numel() / width, width, c.out[0].as<T>(), none, weight, nothing, dy, x);
}

void add_rms_norm(KernelRegistry& registry) {
  add_by_type(registry, "rms_norm", []<typename T>() { return rms_norm<T>; });
  add_by_type(registry, "rms_norm_dx", []<typename T>() { return rms_norm_dx<T>; });
  add_by_type(registry, "rms_norm_dw", []<typename T>() { return rms_norm_dw<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
