#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/muon.cpp"
#include <hwy/foreach_target.h>

#include "core/base/group_scalars.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/square_sums-inl.h"
#include "kernels/muon.h"
#include "kernels/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

void muon_momentum(const KernelContext& c) {
  float *m = c.out[0].as<float>(), *ahead = c.out[1].as<float>();
  if (c.scalars.skip != 0) {
    std::fill_n(ahead, c.out[1].numel(), 0.0f);
    return;
  }
  const float* grad = c.in[0].as<float>();
  const MuonMomentum s(c.scalars);
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    auto next = [=](Vec grads, Vec held) HWY_ATTR {
      return hn::Add(hn::Mul(hn::Set(d, s.beta), held),
                     hn::Mul(hn::Set(d, s.one_beta), hn::Mul(grads, hn::Set(d, s.grad_scale))));
    };
    map(begin, end, m, next, grad, static_cast<const float*>(m));
    map(begin, end, ahead, next, grad, static_cast<const float*>(m));
  });
}

template <typename T>
void unit_matrix_of(const KernelContext& c) {
  const float* x = c.in[0].as<float>();
  T* out = c.out[0].as<T>();
  const int64_t count = c.in[0].numel(), piece = unit_piece(count);
  double sums[kUnitPieces] = {};
  for_blocks(c.team, count, piece, [&](int64_t begin, int64_t end) HWY_ATTR {
    sums[begin / piece] = one_sum(x + begin, end - begin);
  });
  double sum = 0;
  for (double s : sums) sum += s;
  const auto norm = static_cast<float>(std::sqrt(sum) + c.attrs.real("eps"));
  for_blocks(c.team, count, ds::cpu::kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, out, [=](Vec v) HWY_ATTR { return hn::Div(v, hn::Set(Lanes(), norm)); }, x);
  });
}

template <typename X, typename Z>
void blend_of(const KernelContext& c) {
  const bool two = c.in.size() == 2;
  const X *x = c.in[0].as<X>(), *y = two ? c.in[1].as<X>() : nullptr;
  Z* z = c.out[0].as<Z>();
  const auto a = static_cast<float>(c.attrs.real("a")),
             b = static_cast<float>(c.attrs.real_or("b", 0));
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    auto one = [=](Vec u) HWY_ATTR { return hn::Mul(u, hn::Set(d, a)); };
    auto sum = [=](Vec u, Vec v) HWY_ATTR { return hn::Add(one(u), hn::Mul(v, hn::Set(d, b))); };
    if (y) {
      map(begin, end, z, sum, x, y);
    } else {
      map(begin, end, z, one, x);
    }
  });
  const auto diagonal = static_cast<float>(c.attrs.real_or("diagonal", 0));
  for (int64_t e = 0; diagonal != 0 && e < c.in[0].numel(); e += c.in[0].dims[1] + 1) {
    float sum = a * static_cast<float>(x[e]);
    if (two) sum = sum + b * static_cast<float>(y[e]);
    z[e] = static_cast<Z>(sum + diagonal);
  }
}

template <typename T>
void muon_of(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* step = c.in[0].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const bool own = c.out[0].data == c.out[1].data;
  const GroupScalars& group = c.scalars.group;
  const auto rate = static_cast<float>(group.lr),
             decay = static_cast<float>(1 - group.lr * group.weight_decay);
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    auto next = [=](Vec p, Vec s) HWY_ATTR {
      return hn::Sub(hn::Mul(p, hn::Set(d, decay)), hn::Mul(hn::Set(d, rate), s));
    };
    map(begin, end, master, next, static_cast<const float*>(master), step);
    if (!own)
      map(
          begin, end, param, [](Vec p) HWY_ATTR { return p; }, static_cast<const float*>(master));
  });
}

void unit_matrix(const KernelContext& c) {
  by_type(c.out[0].dtype, [&](auto t) { unit_matrix_of<decltype(t)>(c); });
}
void blend(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto x) {
    by_type(c.out[0].dtype, [&](auto z) { blend_of<decltype(x), decltype(z)>(c); });
  });
}
void muon(const KernelContext& c) {
  by_type(c.out[1].dtype, [&](auto t) { muon_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(muon_momentum);
HWY_EXPORT(unit_matrix);
HWY_EXPORT(blend);
HWY_EXPORT(muon);

void add_muon(KernelRegistry& registry) {
  add_kernel(registry, "muon_momentum", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(muon_momentum)(c);
  });
  add_kernel(registry, "unit_matrix", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(unit_matrix)(c);
  });
  add_kernel(registry, "blend", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(blend)(c); });
  add_kernel(registry, "muon", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(muon)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
