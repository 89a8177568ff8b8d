#include "inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"

namespace ds {
namespace {

// Operation number of sampling draws: no graph op of a model has it.
constexpr uint32_t kSamplingOp = 0xFFFFFFFFu;

double draw(uint64_t seed, int64_t position) {
  RandomStream stream{seed, static_cast<uint32_t>(position), 0, kSamplingOp};
  std::array<uint32_t, 4> words = stream.block(0);
  return (static_cast<double>(words[0]) + static_cast<double>(words[1]) * 0x1p-32) * 0x1p-32;
}

}  // namespace

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, int64_t position) {
  require(!logits.empty(), "logits must have at least one element, got none");
  require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature must be >= 0, got {}",
          options.temperature);
  require(options.top_k >= 0, "top_k must be >= 0, got {}", options.top_k);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return std::isnan(x) ? false : (std::isnan(y) || x > y);
  });
  double top = logits[static_cast<size_t>(order[0])];
  if (!std::isfinite(top)) raise(DS_ERROR_NUMERIC, "the largest logit of position {} is {}", position, top);
  if (options.temperature == 0) return order[0];

  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> cumulative;
  double sum = 0;
  for (int32_t id : order) {
    double logit = logits[static_cast<size_t>(id)];
    sum += std::isnan(logit) ? 0 : std::exp((logit - top) / options.temperature);
    cumulative.push_back(sum);
  }
  auto at = std::upper_bound(cumulative.begin(), cumulative.end(), draw(options.seed, position) * sum);
  if (at == cumulative.end()) --at;  // rounding
  return order[static_cast<size_t>(at - cumulative.begin())];
}

}  // namespace ds
