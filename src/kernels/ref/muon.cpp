// The instructions of Muon (Jordan et al., 2024, kellerjordan.github.io/posts/muon) other than its
// matrix products; update/matrix_update.cpp assembles the whole update.
#include "kernels/formulas/muon.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/round.h"
#include "kernels/formulas/skipped.h"
#include "kernels/formulas/step_factors.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Nesterov momentum: m = b m + (1 - b) g, then ahead = b m + (1 - b) g, the matrix that is
// orthogonalized.
void muon_momentum(const KernelContext& c) {
  float *m = c.out[0].as<float>(), *ahead = c.out[1].as<float>();
  // Muon's products run on `ahead` even in a skipped step, so it must not hold NaN or infinity.
  if (c.scalars.skip != 0) {
    std::fill_n(ahead, c.out[1].numel(), 0.0f);
    return;
  }
  const float* grad = c.in[0].as<float>();
  const StepFactors s(c.scalars);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float g = s.one_momentum * (grad[e] * s.grad_scale);
    m[e] = s.momentum * m[e] + g;
    ahead[e] = s.momentum * m[e] + g;
  }
}

// out = x / (norm of x + eps). The squares are summed in pieces, an order that a device can follow
// in parallel (kernels/formulas/muon.h).
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

// z = a x + b y + diagonal I, for the polynomials of the Newton-Schulz iteration. y is optional.
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

// p = p (1 - lr wd) - lr step.
template <typename T>
void muon(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* step = c.in[0].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const StepFactors s(c.scalars);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    master[e] = master[e] * s.keep - s.rate * step[e];
    param[e] = static_cast<T>(master[e]);
  }
}

}  // namespace

void add_muon(KernelRegistry& registry) {
  add_kernel(registry, "muon_momentum", muon_momentum);
  add_by_type<out_type<0>>(registry, "unit_matrix", []<typename T>() { return unit_matrix<T>; });
  add_kernel(registry, "blend", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto x) {
      by_type(c.out[0].dtype, [&](auto z) { blend<decltype(x), decltype(z)>(c); });
    });
  });
  add_by_type<out_type<1>>(registry, "muon", []<typename T>() { return muon<T>; });
}

}  // namespace ds::ref
