// The local steps and the synchronisation of 0/1 Adam, bit-identical to the reference
// (kernels/ref/local_adam.cpp explains them).
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/local_adam.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/step_factors.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The constants of a step, and its arithmetic for one vector. `scale` turns this rank's gradient
// sum into a mean; `rates` is the sum of the learning rates since the last synchronisation.
struct LocalStep : StepFactors {
  float scale, rates;

  LocalStep(const StepScalars& scalars, int64_t ranks)
      : StepFactors(scalars),
        scale(static_cast<float>(scalars.grad_scale * static_cast<double>(ranks))),
        rates(static_cast<float>(scalars.group.rate_sum)) {}

  HWY_INLINE Vec root(Vec v) const { return hn::Add(hn::Sqrt(v), hn::Set(Lanes(), eps)); }
  HWY_INLINE Vec momentum(Vec g, Vec m) const {
    const Lanes d;
    return hn::Add(hn::Mul(hn::Set(d, beta1), m),
                   hn::Mul(hn::Set(d, one_beta1), hn::Mul(g, hn::Set(d, scale))));
  }
  // Returns the sum of steps after one more step, with momentum m.
  HWY_INLINE Vec steps(Vec m, Vec v, Vec p, Vec steps) const {
    const Lanes d;
    Vec u = hn::Add(hn::Div(m, root(v)), hn::Mul(hn::Set(d, decay), hn::Add(p, steps)));
    return hn::Sub(steps, hn::Mul(hn::Set(d, rate), u));
  }
};

void own_gradient(const KernelContext& c) {
  const float* grad = c.in[0].as<float>();
  float* mean = c.out[0].as<float>();
  const LocalStep s(c.scalars, c.attrs.integer("ranks"));
  const bool skip = c.scalars.skip != 0;
  auto one = [=](Vec g) HWY_ATTR {
    return skip ? hn::Zero(Lanes()) : hn::Mul(g, hn::Set(Lanes(), s.scale));
  };
  map_all(c, mean, one, grad);
}

// param = master + steps, rounded.
template <typename T>
HWY_INLINE void write_params(int64_t begin, int64_t end, const float* master, const float* steps,
                             T* param) {
  auto add = [](Vec p, Vec u) HWY_ATTR { return hn::Add(p, u); };
  map(begin, end, param, add, master, steps);
}

// Runs one local step of this rank: updates the momentum, then the sum of steps, then the
// parameters.
template <typename T>
void local_adam_of(const KernelContext& c) {
  const float *grad = c.in[0].as<float>(), *v = c.in[1].as<float>(), *master = c.in[2].as<float>();
  float *m = c.out[0].as<float>(), *steps = c.out[1].as<float>();
  T* param = c.out.size() > 2 ? c.out[2].as<T>() : nullptr;
  const LocalStep s(c.scalars, c.attrs.integer("ranks"));
  const bool sum = c.attrs.integer("sum") != 0, skip = c.scalars.skip != 0;
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    // map() reads through const pointers; outputs are read again as inputs here.
    const float *held = m, *before = steps;
    auto momentum = [=](Vec g, Vec old) HWY_ATTR { return s.momentum(g, old); };
    auto add = [=](Vec mm, Vec vv, Vec p, Vec u) HWY_ATTR {
      Vec next = s.steps(mm, vv, p, u);
      return sum ? hn::Mul(next, s.root(vv)) : next;
    };
    if (!skip) {
      map(begin, end, m, momentum, grad, held);
      map(begin, end, steps, add, held, v, master, before);
    }
    if (param) write_params(begin, end, master, before, param);
  });
}

// Runs after a synchronisation: reconstructs the momentum from the mean of the sums, updates the
// masters and sets `steps` to 0.
template <typename T>
void synced_adam(const KernelContext& c) {
  const float* v = c.in[0].as<float>();
  float *m = c.out[0].as<float>(), *steps = c.out[1].as<float>(), *master = c.out[2].as<float>();
  T* param = c.out[3].as<T>();
  const LocalStep s(c.scalars, 1);
  const bool skip = c.scalars.skip != 0;
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    const float *sum = steps, *held = master;
    auto momentum = [=](Vec u)
                        HWY_ATTR { return hn::Sub(hn::Zero(d), hn::Div(u, hn::Set(d, s.rates))); };
    auto agreed = [=](Vec p, Vec u, Vec vv) HWY_ATTR { return hn::Add(p, hn::Div(u, s.root(vv))); };
    auto nothing = [=](Vec u) HWY_ATTR { return hn::Sub(u, u); };
    if (!skip) {
      if (s.rates != 0) map(begin, end, m, momentum, sum);
      map(begin, end, master, agreed, held, sum, v);
      map(begin, end, steps, nothing, sum);
    }
    write_params(begin, end, held, sum, param);
  });
}

void local_adam(const KernelContext& c) {
  by_type(c.out.size() > 2 ? c.out[2].dtype : DS_DTYPE_F32,
          [&](auto t) { local_adam_of<decltype(t)>(c); });
}

void add_local_adam(KernelRegistry& registry) {
  add_kernel(registry, "own_gradient", own_gradient);
  add_kernel(registry, "local_adam", local_adam);
  add_by_type<out_type<3>>(registry, "synced_adam", []<typename T>() { return synced_adam<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
