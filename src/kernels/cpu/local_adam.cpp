#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/local_adam.cpp"
#include <hwy/foreach_target.h>

#include "core/base/group_scalars.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The constants of one step in f32; docs/reference/ops.md fixes the order of operations, so that
// all implementations agree.
struct LocalStep {
  float rate, eps, decay, b1, one_b1, scale, rates;

  LocalStep(const StepScalars& scalars, int64_t ranks)
      : rate(static_cast<float>(scalars.group.lr)),
        eps(static_cast<float>(scalars.group.eps)),
        decay(static_cast<float>(scalars.group.weight_decay)),
        b1(static_cast<float>(scalars.group.beta1)),
        one_b1(static_cast<float>(1 - scalars.group.beta1)),
        scale(static_cast<float>(scalars.grad_scale * static_cast<double>(ranks))),
        rates(static_cast<float>(scalars.group.rate_sum)) {}

  HWY_INLINE Vec root(Vec v) const { return hn::Add(hn::Sqrt(v), hn::Set(Lanes(), eps)); }
  HWY_INLINE Vec momentum(Vec g, Vec m) const {
    const Lanes d;
    return hn::Add(hn::Mul(hn::Set(d, b1), m),
                   hn::Mul(hn::Set(d, one_b1), hn::Mul(g, hn::Set(d, scale))));
  }
  // The sum of the steps after one with this momentum.
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
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    auto one = [=](Vec g) HWY_ATTR { return skip ? hn::Zero(d) : hn::Mul(g, hn::Set(d, s.scale)); };
    map(begin, end, mean, one, grad);
  });
}

// param = master + steps, rounded.
template <typename T>
HWY_INLINE void write_params(int64_t begin, int64_t end, const float* master, const float* steps,
                             T* param) {
  auto add = [](Vec p, Vec u) HWY_ATTR { return hn::Add(p, u); };
  map(begin, end, param, add, master, steps);
}

template <typename T>
void local_adam_of(const KernelContext& c) {
  const float *grad = c.in[0].as<float>(), *v = c.in[1].as<float>(), *master = c.in[2].as<float>();
  float *m = c.out[0].as<float>(), *steps = c.out[1].as<float>();
  T* param = c.out.size() > 2 ? c.out[2].as<T>() : nullptr;
  const LocalStep s(c.scalars, c.attrs.integer("ranks"));
  const bool sum = c.attrs.integer("sum") != 0, skip = c.scalars.skip != 0;
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
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

template <typename T>
void synced_adam_of(const KernelContext& c) {
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
void synced_adam(const KernelContext& c) {
  by_type(c.out[3].dtype, [&](auto t) { synced_adam_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(own_gradient);
HWY_EXPORT(local_adam);
HWY_EXPORT(synced_adam);

void add_local_adam(KernelRegistry& registry) {
  add_kernel(registry, "own_gradient", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(own_gradient)(c);
  });
  add_kernel(registry, "local_adam", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(local_adam)(c);
  });
  add_kernel(registry, "synced_adam", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(synced_adam)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
