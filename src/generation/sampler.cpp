// Sampling from one row of logits by the inverse of the cumulative distribution. Sums are in f64
// and in the order of candidates, so every rank and every run chooses the same token.
#include "generation/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"

namespace ds {
namespace {

// Operation number of the random stream for sampling. No operation of a model's graph has it.
constexpr uint32_t kSamplingOp = 0xFFFFFFFFu;

constexpr const char* kAdvice =
    "; f16 ends at 65504, so try dtype bf16 or f32; in f32 the weights themselves have NaN or "
    "infinity, or values that are too large";

// Returns a uniform number in [0, 1) from 64 random bits.
double draw(uint64_t seed, int64_t position) {
  RandomStream stream{seed, static_cast<uint32_t>(position), 0, kSamplingOp};
  std::array<uint32_t, 4> words = stream.block(0);
  return (static_cast<double>(words[0]) + static_cast<double>(words[1]) * 0x1p-32) * 0x1p-32;
}

// Returns the id of the largest logit, the smallest id among equals. No logit may be NaN.
int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Throws if any logit is NaN, because then none of them is meaningful.
void check_numbers(std::span<const float> logits, int64_t position) {
  auto found = std::ranges::find_if(logits, [](float logit) { return std::isnan(logit); });
  if (found == logits.end()) return;
  raise(DS_ERROR_NUMERIC, "logits must be numbers: at position {} the logit of token {} is NaN{}",
        position, found - logits.begin(), kAdvice);
}

// Returns the ids of the k largest logits, the largest first and among equals the smaller id first.
// If k is 0 or at least the number of logits, returns all ids in ascending order.
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
  if (!std::isfinite(top)) {
    raise(DS_ERROR_NUMERIC, "logits must be numbers: the largest one of position {} is {}{}",
          position, top, kAdvice);
  }
  if (options.temperature == 0) return largest(logits);

  std::vector<int32_t> order = candidates(logits, options.top_k);
  std::vector<double> cumulative;
  double sum = 0;
  for (int32_t id : order) {
    double logit = logits[static_cast<size_t>(id)];
    // Subtracting the largest logit keeps the exponential from overflowing.
    sum += std::isnan(logit) ? 0 : std::exp((logit - top) / options.temperature);
    cumulative.push_back(sum);
  }
  auto at = std::ranges::upper_bound(cumulative, draw(options.seed, position) * sum);
  // Rounding can make the random number equal to the sum.
  if (at == cumulative.end()) --at;
  return order[static_cast<size_t>(at - cumulative.begin())];
}

}  // namespace ds
