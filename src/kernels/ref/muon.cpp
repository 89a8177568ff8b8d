// The instructions of Muon around its products (zero/matrix_update.cpp).
#include "kernels/muon.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "core/base/round.h"
#include "kernels/ref/ref.h"
#include "kernels/skipped.h"

namespace ds::ref {
namespace {

void muon_momentum(const KernelContext& c) {
  float *m = c.out[0].as<float>(), *ahead = c.out[1].as<float>();
  if (c.scalars.skip != 0) {
    std::fill_n(ahead, c.out[1].numel(), 0.0f);
    return;
  }
  const float* grad = c.in[0].as<float>();
  const MuonMomentum s(c.scalars);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float g = s.one_beta * (grad[e] * s.grad_scale);
    m[e] = s.beta * m[e] + g;
    ahead[e] = s.beta * m[e] + g;
  }
}

template <typename T>
void unit_matrix(const KernelContext& c) {
  const float* x = c.in[0].as<float>();
  T* out = c.out[0].as<T>();
  const int64_t count = c.in[0].numel(), piece = unit_piece(count);
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += piece) {
    double part = 0;
    for (int64_t e = begin; e < std::min(count, begin + piece); ++e)
      part += static_cast<double>(x[e]) * static_cast<double>(x[e]);
    sum += part;
  }
  const auto norm = static_cast<float>(std::sqrt(sum) + c.attrs.real("eps"));
  for (int64_t e = 0; e < count; ++e) out[e] = static_cast<T>(x[e] / norm);
}

template <typename X, typename Z>
void blend(const KernelContext& c) {
  const bool two = c.in.size() == 2;
  const X *x = c.in[0].as<X>(), *y = two ? c.in[1].as<X>() : nullptr;
  Z* z = c.out[0].as<Z>();
  const auto a = static_cast<float>(c.attrs.real("a")),
             b = static_cast<float>(c.attrs.real_or("b", 0));
  const auto diagonal = static_cast<float>(c.attrs.real_or("diagonal", 0));
  const int64_t cols = diagonal == 0 ? 1 : c.in[0].dims[1];
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float sum = a * static_cast<float>(x[e]);
    if (two) sum = sum + b * static_cast<float>(y[e]);
    if (diagonal != 0 && e % (cols + 1) == 0) sum = sum + diagonal;
    z[e] = static_cast<Z>(sum);
  }
}

template <typename T>
void muon(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* step = c.in[0].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const GroupScalars& group = c.scalars.group;
  const auto rate = static_cast<float>(group.lr),
             decay = static_cast<float>(1 - group.lr * group.weight_decay);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    master[e] = master[e] * decay - rate * step[e];
    param[e] = static_cast<T>(master[e]);
  }
}

}  // namespace

void add_muon(KernelRegistry& registry) {
  add_kernel(registry, "muon_momentum", muon_momentum);
  add_kernel(registry, "unit_matrix", [](const KernelContext& c) {
    by_type(c.out[0].dtype, [&](auto t) { unit_matrix<decltype(t)>(c); });
  });
  add_kernel(registry, "blend", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto x) {
      by_type(c.out[0].dtype, [&](auto z) { blend<decltype(x), decltype(z)>(c); });
    });
  });
  add_kernel(registry, "muon", [](const KernelContext& c) {
    by_type(c.out[1].dtype, [&](auto t) { muon<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
