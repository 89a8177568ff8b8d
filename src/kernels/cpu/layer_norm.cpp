// Layer normalization and its gradients. A row is read three times, for the mean, the variance and
// the result, and stays in the cache in between.
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sum_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// finished() applies weight and bias after normalization; weighted() multiplies a gradient by the
// weight. Without these operands both are the identity.
HWY_INLINE Vec finished(Vec normal) { return normal; }
HWY_INLINE Vec finished(Vec normal, Vec weight, Vec bias) {
  return hn::MulAdd(normal, weight, bias);
}
HWY_INLINE Vec weighted(Vec gradient) { return gradient; }
HWY_INLINE Vec weighted(Vec gradient, Vec weight) { return hn::Mul(gradient, weight); }

// y = (x - mean) rstd w + b. For each row, rstd = 1 / sqrt(var + eps), where var is the mean of (x
// - mean)^2. `affine` is w and b, or empty.
template <typename T, typename... P>
void layer_norm_of(const KernelContext& c, const P*... affine) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  float *means = c.out[1].as<float>(), *rstds = c.out[2].as<float>();
  int64_t width = c.in[0].dims[1];
  float eps = static_cast<float>(c.attrs.real("eps")), count = static_cast<float>(width);
  for_blocks(c.team, c.in[0].dims[0], rows_per_task(width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t r = begin; r < end; ++r) {
                 const T* row = x + r * width;
                 float mean = sum_of(
                                  width, [](Vec v) HWY_ATTR { return v; }, row) /
                              count;
                 Vec center = hn::Set(Lanes(), mean);
                 auto square = [=](Vec v) HWY_ATTR {
                   Vec centered = hn::Sub(v, center);
                   return hn::Mul(centered, centered);
                 };
                 // Squares of differences from the mean are summed, because the mean of squares
                 // minus the square of the mean would cancel.
                 float rstd = 1 / std::sqrt(sum_of(width, square, row) / count + eps);
                 Vec scale = hn::Set(Lanes(), rstd);
                 auto normal = [=](Vec v, auto... more) HWY_ATTR {
                   return finished(hn::Mul(hn::Sub(v, center), scale), more...);
                 };
                 map(0, width, y + r * width, normal, row, affine...);
                 means[r] = mean;
                 rstds[r] = rstd;
               }
             });
}

void layer_norm(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    c.in.size() == 3 ? layer_norm_of<T>(c, c.in[1].as<T>(), c.in[2].as<T>()) : layer_norm_of<T>(c);
  });
}

// With g = dy w and h = (x - mean) rstd: dx = rstd (g - mean(g) - h mean(g h)). `weights` is w, or
// empty.
template <typename T, typename... P>
void layer_norm_dx_of(const KernelContext& c, const P*... weights) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  std::span<const TensorView> stats = c.in.last(2);
  const float *means = stats[0].as<float>(), *rstds = stats[1].as<float>();
  T* dx = c.out[0].as<T>();
  int64_t width = c.in[0].dims[1];
  float count = static_cast<float>(width);
  for_blocks(
      c.team, c.in[0].dims[0], rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
        const Lanes d;
        for (int64_t r = begin; r < end; ++r) {
          const T *gradient = dy + r * width, *row = x + r * width;
          Vec center = hn::Set(d, means[r]), scale = hn::Set(d, rstds[r]);
          auto product = [=](Vec g, Vec v, auto... w) HWY_ATTR {
            return hn::Mul(weighted(g, w...), hn::Mul(hn::Sub(v, center), scale));
          };
          float sum_g = sum_of(
              width, [](Vec g, auto... w) HWY_ATTR { return weighted(g, w...); }, gradient,
              weights...);
          float sum_gh = sum_of(width, product, gradient, row, weights...);
          Vec mean_g = hn::Set(d, sum_g / count), mean_gh = hn::Set(d, sum_gh / count);
          auto result = [=](Vec g, Vec v, auto... w) HWY_ATTR {
            Vec h = hn::Mul(hn::Sub(v, center), scale);
            return hn::Mul(scale, hn::NegMulAdd(h, mean_gh, hn::Sub(weighted(g, w...), mean_g)));
          };
          map(0, width, dx + r * width, result, gradient, row, weights...);
        }
      });
}

void layer_norm_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    c.in.size() == 5 ? layer_norm_dx_of<T>(c, c.in[2].as<T>()) : layer_norm_dx_of<T>(c);
  });
}

// dw = the sum over rows of dy (x - mean) rstd, db = the sum over rows of dy.
template <typename T>
void layer_norm_dw(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  const float *means = c.in[2].as<float>(), *rstds = c.in[3].as<float>();
  T *dw = c.out[0].as<T>(), *db = c.out[1].as<T>();
  int64_t width = c.in[0].dims[1];
  auto weight = [=](int64_t r, Vec g, Vec v) HWY_ATTR {
    const Lanes d;
    return hn::Mul(g, hn::Mul(hn::Sub(v, hn::Set(d, means[r])), hn::Set(d, rstds[r])));
  };
  auto bias = [](int64_t, Vec g, Vec) HWY_ATTR { return g; };
  sum_rows(c.team, c.in[0].dims[0], width, dw, db, weight, bias, dy, x);
}

void add_layer_norm(KernelRegistry& registry) {
  add_kernel(registry, "layer_norm", layer_norm);
  add_kernel(registry, "layer_norm_dx", layer_norm_dx);
  add_by_type(registry, "layer_norm_dw", []<typename T>() { return layer_norm_dw<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
