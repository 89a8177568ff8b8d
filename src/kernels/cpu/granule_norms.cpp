#include <array>

#include "kernels/cpu/cpu.h"

namespace ds::cpu {
namespace {

constexpr int64_t kGranule = 256;
// Granules whose sums run side by side: each is a chain in element order, so more than one hides its latency.
constexpr int64_t kChains = 8;

// sum[j] = sum of squares of granule first + j, in element order in f64
template <int64_t N>
void sums(const float* grad, double* sum) {
  std::array<double, N> chain{};
  for (int64_t e = 0; e < kGranule; ++e) {
    for (int64_t j = 0; j < N; ++j) {
      double g = static_cast<double>(grad[j * kGranule + e]);
      chain[static_cast<size_t>(j)] += g * g;
    }
  }
  for (int64_t j = 0; j < N; ++j) sum[j] = chain[static_cast<size_t>(j)];
}

void granule_norms(const KernelContext& c) {
  const float* grad = c.in[0].as<float>();
  double* out = c.out[0].as<double>();
  for_blocks(c.team, c.in[0].numel() / kGranule, 8 * kChains, [=](int64_t begin, int64_t end) {
    int64_t k = begin;
    for (; k + kChains <= end; k += kChains) sums<kChains>(grad + k * kGranule, out + k);
    for (; k < end; ++k) sums<1>(grad + k * kGranule, out + k);
  });
}

}  // namespace

void add_granule_norms(KernelRegistry& registry) { add_kernel(registry, "granule_norms", granule_norms); }

}  // namespace ds::cpu
