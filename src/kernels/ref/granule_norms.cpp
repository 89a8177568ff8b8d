// Computes a sum of squares for each granule of a rank's shard, from which norms are computed. They
// are later added in the order of parameters, so a norm does not depend on the layout.
#include <algorithm>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// out[k] = the sum of squares of granule k, added in element order in f64.
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
  add_by_type(registry, "granule_norms", []<typename T>() { return granule_norms<T>; });
}

}  // namespace ds::ref
