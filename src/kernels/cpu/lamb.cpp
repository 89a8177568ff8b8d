// The moments and the step of LAMB, bit-identical to the reference (kernels/ref/lamb.cpp explains
// the three instructions). lamb_ratios is left to the reference.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lamb.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/lamb.h"
#include "kernels/formulas/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The number of elements that are processed together, usually a granule.
constexpr int64_t kPiece = 256;

// Returns the step of a vector before the trust ratio is applied: m / (sqrt(v) + eps) + decay p, or
// with eps inside the root.
HWY_INLINE Vec lamb_step(const LambStep& s, Vec p, Vec m, Vec v) {
  const Lanes d;
  const Vec eps = hn::Set(d, s.eps);
  Vec root = s.inside ? hn::Sqrt(hn::Add(v, eps)) : hn::Add(hn::Sqrt(v), eps);
  return hn::Add(hn::Div(m, root), hn::Mul(hn::Set(d, s.decay), p));
}

struct Moments {
  Vec m, v;
};

HWY_INLINE Moments lamb_moments_of(const LambStep& s, Vec grad, Moments old) {
  const Lanes d;
  Vec g = hn::Mul(grad, hn::Set(d, s.grad_scale));
  Vec m = hn::Add(hn::Mul(hn::Set(d, s.beta1), old.m), hn::Mul(hn::Set(d, s.one_beta1), g));
  Vec v =
      hn::Add(hn::Mul(hn::Set(d, s.beta2), old.v), hn::Mul(hn::Set(d, s.one_beta2), hn::Mul(g, g)));
  return {m, v};
}

// Updates the moments of `count` <= kPiece elements and stores their steps before the trust ratio.
HWY_INLINE void renew_moments(const LambStep& s, const float* grad, const float* master, float* m,
                              float* v, float* step, int64_t count) {
  int64_t e = 0;
  for (; e + lanes() <= count; e += lanes()) {
    Moments next = lamb_moments_of(s, load(grad + e), {load(m + e), load(v + e)});
    store(next.m, m + e);
    store(next.v, v + e);
    store(lamb_step(s, load(master + e), next.m, next.v), step + e);
  }
  if (int64_t left = count - e; left > 0) {
    Moments next = lamb_moments_of(s, load_part(grad + e, left),
                                   {load_part(m + e, left), load_part(v + e, left)});
    store_part(next.m, m + e, left);
    store_part(next.v, v + e, left);
    store_part(lamb_step(s, load_part(master + e, left), next.m, next.v), step + e, left);
  }
}

// Adds the squares of parameters to sums[0] and the squares of steps to sums[1], in element order
// in f64. The two chains of additions run side by side.
HWY_INLINE void add_squares(const float* param, const float* step, int64_t count, double* sums) {
  double p = sums[0], u = sums[1];
  for (int64_t e = 0; e < count; ++e) {
    p += static_cast<double>(param[e]) * static_cast<double>(param[e]);
    u += static_cast<double>(step[e]) * static_cast<double>(step[e]);
  }
  sums[0] = p;
  sums[1] = u;
}

void lamb_moments(const KernelContext& c) {
  double* norms = c.out[2].as<double>();
  if (c.scalars.skip != 0) {
    std::fill_n(norms, c.out[2].numel(), 0.0);
    return;
  }
  const float *grad = c.in[0].as<float>(), *master = c.in[1].as<float>();
  float *m = c.out[0].as<float>(), *v = c.out[1].as<float>();
  const LambStep s(c.scalars, c.attrs);
  int64_t granules = c.out[2].numel() / 2,
          granule = c.in[0].numel() / std::max<int64_t>(granules, 1);
  int64_t task = std::max<int64_t>(1, kBlock / std::max<int64_t>(granule, 1));
  for_blocks(c.team, granules, task, [=](int64_t begin, int64_t end) HWY_ATTR {
    // The step is needed for its norm only; `lamb` computes it again.
    float step[kPiece];
    for (int64_t k = begin; k < end; ++k) {
      double sums[2] = {0, 0};
      for (int64_t at = k * granule; at < (k + 1) * granule; at += kPiece) {
        int64_t count = std::min(kPiece, (k + 1) * granule - at);
        renew_moments(s, grad + at, master + at, m + at, v + at, step, count);
        add_squares(master + at, step, count, sums);
      }
      std::copy(sums, sums + 2, norms + 2 * k);
    }
  });
}

template <typename T>
void lamb(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float *m = c.in[0].as<float>(), *v = c.in[1].as<float>(), *ratios = c.in[2].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const LambStep s(c.scalars, c.attrs);
  int64_t granules = c.in[2].numel(), granule = c.in[0].numel() / std::max<int64_t>(granules, 1);
  int64_t task = std::max<int64_t>(1, kBlock / std::max<int64_t>(granule, 1));
  for_blocks(c.team, granules, task, [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t k = begin; k < end; ++k) {
      // All elements of a granule belong to one parameter and have one ratio.
      const Vec rate = hn::Set(Lanes(), s.rate * ratios[k]);
      int64_t e = k * granule, last = e + granule;
      for (; e + lanes() <= last; e += lanes()) {
        Vec p = load(master + e);
        p = hn::Sub(p, hn::Mul(rate, lamb_step(s, p, load(m + e), load(v + e))));
        store(p, master + e);
        store(p, param + e);
      }
      if (int64_t left = last - e; left > 0) {
        Vec p = load_part(master + e, left);
        p = hn::Sub(p,
                    hn::Mul(rate, lamb_step(s, p, load_part(m + e, left), load_part(v + e, left))));
        store_part(p, master + e, left);
        store_part(p, param + e, left);
      }
    }
  });
}

void add_lamb(KernelRegistry& registry) {
  add_kernel(registry, "lamb_moments", lamb_moments);
  add_by_type<out_type<1>>(registry, "lamb", []<typename T>() { return lamb<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
