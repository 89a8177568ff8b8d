// Values, bounds and a configuration for tests of quantization.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/random.h"
#include "core/config/config.h"
#include "support/models.h"

namespace ds::test {

// The elements of a granule, and the shape of a tensor that is not a whole number of granules.
inline constexpr int64_t kGranule = 256, kRows = 60, kColumns = 50;

// Factor by which a few additions and multiplications, rounded to f32, may exceed an error bound.
inline constexpr double kRounding = 1 + 0x1p-18;

inline std::vector<float> random_values(uint64_t seed, double spread) {
  std::vector<float> out;
  RandomStream stream{seed, 0, 0, 0};
  // Values of neighbouring granules differ in magnitude.
  for (uint64_t e = 0; e < kRows * kColumns; ++e)
    out.push_back(
        static_cast<float>(spread * normal_element(stream, e) * std::pow(2.0, (e >> 8) % 5)));
  return out;
}

// Returns, for each element, the largest magnitude in its granule.
inline std::vector<double> granule_tops(const std::vector<double>& x) {
  std::vector<double> top(x.size());
  for (size_t g = 0; g < x.size(); g += kGranule) {
    size_t end = std::min(x.size(), g + kGranule);
    double most = 0;
    for (size_t e = g; e < end; ++e) most = std::max(most, std::abs(x[e]));
    std::fill(top.begin() + static_cast<ptrdiff_t>(g), top.begin() + static_cast<ptrdiff_t>(end),
              most);
  }
  return top;
}

inline Config delegate_config(int stage, int world, int64_t nodes, int64_t accumulation = 1) {
  Config c = make_config(stage, accumulation, world);
  c.zero.param_persistence_threshold = 0;
  c.nodes = nodes;
  c.gradient_clipping = 0;
  return c;
}

}  // namespace ds::test
