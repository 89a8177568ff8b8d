// The instructions of Muon other than its matrix products, bit-identical to the reference.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/muon.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/square_sums-inl.h"
#include "kernels/formulas/muon.h"
#include "kernels/formulas/skipped.h"
#include "kernels/formulas/step_factors.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

void muon_momentum(const KernelContext& c) {
  float *m = c.out[0].as<float>(), *ahead = c.out[1].as<float>();
  // Muon's products run on `ahead` even in a skipped step, so it must not hold NaN or infinity.
  if (c.scalars.skip != 0) {
    std::fill_n(ahead, c.out[1].numel(), 0.0f);
    return;
  }
  const float* grad = c.in[0].as<float>();
  const StepFactors s(c.scalars);
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    auto next = [=](Vec grads, Vec held) HWY_ATTR {
      return hn::Add(hn::Mul(hn::Set(d, s.momentum), held),
                     hn::Mul(hn::Set(d, s.one_momentum), hn::Mul(grads, hn::Set(d, s.grad_scale))));
    };
    map(begin, end, m, next, grad, m);
    // Nesterov momentum applies the same formula once more, to the new momentum.
    map(begin, end, ahead, next, grad, m);
  });
}

template <typename T>
void unit_matrix(const KernelContext& c) {
  const float* x = c.in[0].as<float>();
  T* out = c.out[0].as<T>();
  const int64_t count = c.in[0].numel(), piece = unit_piece(count);
  // Pieces depend only on the count, and their sums are added in order.
  double sums[kUnitPieces] = {};
  for_blocks(c.team, count, piece, [&](int64_t begin, int64_t end) HWY_ATTR {
    sums[begin / piece] = one_sum(x + begin, end - begin);
  });
  double sum = 0;
  for (double s : sums) sum += s;
  const auto norm = static_cast<float>(std::sqrt(sum) + c.attrs.real("eps"));
  map_all(
      c, out, [=](Vec v) HWY_ATTR { return hn::Div(v, hn::Set(Lanes(), norm)); }, x);
}

// Computes z = a x + b y, then the elements on the diagonal again with `diagonal` added.
template <typename X, typename Z>
void blend_of(const KernelContext& c) {
  const bool two = c.in.size() == 2;
  const X *x = c.in[0].as<X>(), *y = two ? c.in[1].as<X>() : nullptr;
  Z* z = c.out[0].as<Z>();
  const auto a = static_cast<float>(c.attrs.real("a")),
             b = static_cast<float>(c.attrs.real_or("b", 0));
  auto one = [=](Vec u) HWY_ATTR { return hn::Mul(u, hn::Set(Lanes(), a)); };
  auto sum = [=](Vec u, Vec v)
                 HWY_ATTR { return hn::Add(one(u), hn::Mul(v, hn::Set(Lanes(), b))); };
  y ? map_all(c, z, sum, x, y) : map_all(c, z, one, x);
  const auto diagonal = static_cast<float>(c.attrs.real_or("diagonal", 0));
  for (int64_t e = 0; diagonal != 0 && e < c.in[0].numel(); e += c.in[0].dims[1] + 1) {
    float total = a * static_cast<float>(x[e]);
    if (two) total = total + b * static_cast<float>(y[e]);
    z[e] = static_cast<Z>(total + diagonal);
  }
}

template <typename T>
void muon(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* step = c.in[0].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  // Whether the parameter is the master itself.
  const bool own = c.out[0].data == c.out[1].data;
  const StepFactors f(c.scalars);
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    auto next = [=](Vec p, Vec s) HWY_ATTR {
      return hn::Sub(hn::Mul(p, hn::Set(d, f.keep)), hn::Mul(hn::Set(d, f.rate), s));
    };
    map(begin, end, master, next, master, step);
    if (!own)
      map(
          begin, end, param, [](Vec p) HWY_ATTR { return p; }, master);
  });
}

void blend(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto x) {
    by_type(c.out[0].dtype, [&](auto z) { blend_of<decltype(x), decltype(z)>(c); });
  });
}

void add_muon(KernelRegistry& registry) {
  add_kernel(registry, "muon_momentum", muon_momentum);
  add_by_type<out_type<0>>(registry, "unit_matrix", []<typename T>() { return unit_matrix<T>; });
  add_kernel(registry, "blend", blend);
  add_by_type<out_type<1>>(registry, "muon", []<typename T>() { return muon<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
