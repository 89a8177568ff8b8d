#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

constexpr int64_t kGranule = 256;

// out[k] = sum of squares of granule k, in element order in f64
void granule_norms(const KernelContext& c) {
  const float* grad = c.in[0].as<float>();
  double* out = c.out[0].as<double>();
  for (int64_t k = 0; k < c.in[0].numel() / kGranule; ++k) {
    double sum = 0;
    for (int64_t e = 0; e < kGranule; ++e) {
      double g = static_cast<double>(grad[k * kGranule + e]);
      sum += g * g;
    }
    out[k] = sum;
  }
}

}  // namespace

void add_granule_norms(KernelRegistry& registry) { add_kernel(registry, "granule_norms", granule_norms); }

}  // namespace ds::ref
