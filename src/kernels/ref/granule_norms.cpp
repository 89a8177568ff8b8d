#include <algorithm>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// out[k] = sum of squares of granule k, in element order in f64
template <typename T>
void granule_norms(const KernelContext& c) {
  const T* grad = c.in[0].as<T>();
  double* out = c.out[0].as<double>();
  int64_t granule = c.in[0].numel() / std::max<int64_t>(c.out[0].numel(), 1);
  for (int64_t k = 0; k < c.out[0].numel(); ++k) {
    double sum = 0;
    for (int64_t e = 0; e < granule; ++e) {
      double g = static_cast<double>(get(grad, k * granule + e));
      sum += g * g;
    }
    out[k] = sum;
  }
}

}  // namespace

void add_granule_norms(KernelRegistry& registry) {
  add_kernel(registry, "granule_norms", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { granule_norms<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
