// The elementwise part of 1-bit LAMB after its freeze step, bit-identical to the reference
// (kernels/ref/frozen_lamb.cpp explains it). The other instructions of the optimizer compute a few
// numbers for each parameter and are left to the reference.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/frozen_lamb.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/step_factors.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The number of elements that are processed together, usually a granule.
constexpr int64_t kLambPiece = 256;

void scale_momentum(const KernelContext& c) {
  const float *x = c.in[0].as<float>(), scale = *c.in[1].as<float>();
  float* y = c.out[0].as<float>();
  const bool inverse = c.attrs.integer("inverse") != 0;
  if (inverse && c.scalars.skip != 0) return;
  auto one = [=](Vec v) HWY_ATTR {
    const Vec by = hn::Set(Lanes(), scale);
    return inverse ? hn::Div(v, by) : hn::Mul(v, by);
  };
  map_all(c, y, one, x);
}

// The arithmetic of one vector. root() returns the denominator of a step, fresh() the next second
// moment, updated with a reconstructed gradient, and factor() the ratio of the denominators for the
// frozen and the fresh second moment. Padding and elements that never had a gradient have the
// factor 0.
struct FrozenLamb : StepFactors {
  using StepFactors::StepFactors;

  HWY_INLINE Vec root(Vec v) const { return hn::Add(hn::Sqrt(v), hn::Set(Lanes(), eps)); }
  HWY_INLINE Vec fresh(Vec before, Vec m, Vec old) const {
    const Lanes d;
    Vec g = hn::Div(hn::Sub(m, hn::Mul(hn::Set(d, beta1), before)), hn::Set(d, one_beta1));
    return hn::Add(hn::Mul(hn::Set(d, beta2), old), hn::Mul(hn::Set(d, one_beta2), hn::Mul(g, g)));
  }
  HWY_INLINE Vec factor(Vec v, Vec now) const {
    const Vec zero = hn::Zero(Lanes());
    auto says = hn::Or(hn::Gt(v, zero), hn::Gt(now, zero));
    return hn::IfThenElseZero(says, hn::Div(root(v), root(now)));
  }
};

void frozen_lamb_moments(const KernelContext& c) {
  double* norms = c.out[1].as<double>();
  if (c.scalars.skip != 0) {
    std::fill_n(norms, c.out[1].numel(), 0.0);
    return;
  }
  const float *before = c.in[0].as<float>(), *m = c.in[1].as<float>(), *v = c.in[2].as<float>(),
              *master = c.in[3].as<float>();
  float* fresh = c.out[0].as<float>();
  const FrozenLamb s(c.scalars);
  int64_t granules = c.out[1].numel() / 3,
          granule = c.in[0].numel() / std::max<int64_t>(granules, 1);
  int64_t task = std::max<int64_t>(1, kBlock / std::max<int64_t>(granule, 1));
  for_blocks(c.team, granules, task, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    // The step without decay, the step with it, and the factor of each element.
    float step[kLambPiece], all[kLambPiece], factors[kLambPiece];
    auto renew = [=](Vec b, Vec mm, Vec old) HWY_ATTR { return s.fresh(b, mm, old); };
    auto moment = [=](Vec mm, Vec vv) HWY_ATTR { return hn::Div(mm, s.root(vv)); };
    auto decayed = [=](Vec x, Vec p)
                       HWY_ATTR { return hn::Add(x, hn::Mul(hn::Set(d, s.decay), p)); };
    auto factor = [=](Vec vv, Vec now) HWY_ATTR { return s.factor(vv, now); };
    for (int64_t k = begin; k < end; ++k) {
      double moments = 0, steps = 0;
      float most = 0;
      for (int64_t at = k * granule; at < (k + 1) * granule; at += kLambPiece) {
        int64_t count = std::min(kLambPiece, (k + 1) * granule - at);
        map(0, count, fresh + at, renew, before + at, m + at, fresh + at);
        map(0, count, step, moment, m + at, v + at);
        map(0, count, all, decayed, step, master + at);
        map(0, count, factors, factor, v + at, fresh + at);
        for (int64_t e = 0; e < count; ++e) {
          moments += static_cast<double>(step[e]) * static_cast<double>(step[e]);
          steps += static_cast<double>(all[e]) * static_cast<double>(all[e]);
          most = std::max(most, factors[e]);
        }
      }
      norms[3 * k] = moments;
      norms[3 * k + 1] = steps;
      norms[3 * k + 2] = static_cast<double>(most);
    }
  });
}

void add_frozen_lamb(KernelRegistry& registry) {
  add_kernel(registry, "scale_momentum", scale_momentum);
  add_kernel(registry, "frozen_lamb_moments", frozen_lamb_moments);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
