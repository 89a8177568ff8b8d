#include "inference/sampler.h"

#include <algorithm>
#include <array>
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

// The first of the largest logits, none of which is NaN.
int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A model that makes one NaN has gone wrong, and so have its other logits.
void check_numbers(std::span<const float> logits, int64_t position) {
  auto found =
      std::find_if(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); });
  if (found == logits.end()) return;
  raise(DS_ERROR_NUMERIC, "logits must be numbers: at position {} that of token {} is NaN",
        position, found - logits.begin());
}

// The k largest, largest first, of equal ones the smaller id first; k = 0: all, by id.
std::vector<int32_t> candidates(std::span<const float> logits, int64_t k) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  if (k == 0 || static_cast<size_t>(k) >= order.size()) return order;
  auto before = [&](int32_t a, int32_t b) {
    float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
  order.resize(static_cast<size_t>(k));
  return order;
}

}  // namespace

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position) {
  require(!logits.empty(), "logits must have at least one element, got none");
  require(options.temperature >= 0 && std::isfinite(options.temperature),
          "temperature must be >= 0, got {}", options.temperature);
  require(options.top_k >= 0, "top_k must be >= 0, got {}", options.top_k);
  check_numbers(logits, position);
  double top = logits[static_cast<size_t>(largest(logits))];
  if (!std::isfinite(top))
    raise(DS_ERROR_NUMERIC, "the largest logit of position {} is {}", position, top);
  if (options.temperature == 0) return largest(logits);

  std::vector<int32_t> order = candidates(logits, options.top_k);
  std::vector<double> cumulative;
  double sum = 0;
  for (int32_t id : order) {
    double logit = logits[static_cast<size_t>(id)];
    sum += std::isnan(logit) ? 0 : std::exp((logit - top) / options.temperature);
    cumulative.push_back(sum);
  }
  auto at =
      std::upper_bound(cumulative.begin(), cumulative.end(), draw(options.seed, position) * sum);
  if (at == cumulative.end()) --at;  // rounding
  return order[static_cast<size_t>(at - cumulative.begin())];
}

}  // namespace ds
