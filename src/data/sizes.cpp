#include "data/sizes.h"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/config/config.h"
#include "data/data_efficiency.h"
#include "data/preference.h"

namespace ds {
namespace {

struct Factor {
  const char* path;
  double value;
};

// Refuses factors with a product above `limit`. The product is computed in f64, which cannot wrap.
template <size_t n>
void check_product(const char* unit, const std::array<Factor, n>& factors, double limit) {
  double product = 1;
  std::string text;
  for (const Factor& factor : factors) {
    product *= factor.value;
    text += fmt::format("{}{} {:.0f}", text.empty() ? "" : " * ", factor.path, factor.value);
  }
  if (product > limit)
    raise(DS_ERROR_CONFIG, "{} = {:.0f} {} is above {:.0f}", text, product, unit, limit);
}

double real(int64_t value) { return static_cast<double>(value); }

// Returns the number of rows of a sample or, with dynamic batching, of a group, and the key that
// sets it.
Factor rows_of_a_sample(const Config& c) {
  const DynamicBatchingKeys& d = c.get<DynamicBatchingKeys>();
  if (!d.enabled || d.max_tokens <= c.sequence) return {"run.sequence", real(c.sequence)};
  return {"data_efficiency.data_sampling.dynamic_batching.max_tokens", real(d.max_tokens)};
}

}  // namespace

// 2^50 values leave a factor of 2^13 below 2^63, for the bytes of an element and the tensors of a
// layer.
void check_sizes(const Config& c) {
  constexpr double kTokens = 2147483647, kWeights = 0x1p43, kValues = 0x1p50;
  // A pair has two texts.
  const bool pairs = c.get<PreferenceKeys>().on();
  const Factor micro{
      pairs ? "2 * train_micro_batch_size_per_gpu" : "train_micro_batch_size_per_gpu",
      real(c.micro_batch) * (pairs ? 2 : 1)},
      sequence = rows_of_a_sample(c);
  // Without a family the sizes are those of the caller's graph or of a folder.
  if (c.model.family.empty()) return;
  check_product(
      "tokens of a rank's step",
      std::array{micro, Factor{"gradient_accumulation_steps", real(c.accumulation)}, sequence},
      kTokens);
  const ModelConfig& m = c.model;
  const Factor layers{"model.layers", real(m.layers)}, hidden{"model.hidden", real(m.hidden)},
      vocab{"model.vocab", real(m.vocab)};
  check_product("weights", std::array{layers, hidden, hidden}, kWeights);
  check_product("weights", std::array{vocab, hidden}, kWeights);
  check_product("weights", std::array{Factor{"model.positions", real(m.positions)}, hidden},
                kWeights);
  check_product("values", std::array{micro, sequence, layers, hidden}, kValues);
  check_product("values", std::array{micro, sequence, vocab}, kValues);
}

}  // namespace ds
