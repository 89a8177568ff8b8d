#include "update/keys.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/config/needs.h"
#include "core/config/refuse.h"

namespace ds {

void compression_keys(KeyList& keys) {
  using G = GradientCompressionConfig;
  KeyRows rows(keys, "gradient_compression.", &Config::gradient_compression);
  rows.words(
      "type", &G::type, {"none", "int8", "top_k"},
      "`none`, `int8` or `top_k`: the form of the gradients that ranks exchange, once a step and "
      "with error feedback: 8-bit codes with a scale for every 256 elements, or the largest "
      "elements of each tensor. The key works at ZeRO stages 0 and 1 and with every optimizer but "
      "the 1-bit ones and `Muon`; it is refused with `sparse_gradients` and in delegate mode. Norm "
      "and clipping are computed from the ranks' own gradients, as after the freeze of "
      "`OneBitAdam`. Compression changes the bits and makes them depend on the number of ranks");
  rows.add("ratio", &G::ratio,
           "with `top_k`: the share of the elements of each tensor that a rank sends, above 0 and "
           "at most 1; their number is rounded up",
           Limits{.low = 0, .high = 1})
      .when([](const Config& c) { return c.gradient_compression.type == "top_k"; });
}

// With gradient compression, gradients stay on their rank until the end of the step and are then
// compressed bucket by bucket. The rules refuse every setting that needs gradients earlier, in
// parts or in another form.
void check_gradient_compression(const Config& c) {
  constexpr const char* kType = "gradient_compression.type";
  const GradientCompressionConfig& g = c.gradient_compression;
  using enum ConfigNeed::Kind;
  static const std::vector<ConfigNeed> ratio{
      {"gradient_compression.ratio", {}, needs, kType, {"top_k"}}};
  check_needs(c, ratio);
  if (g.on() && g.ratio <= 0)
    refuse("gradient_compression.ratio", "must be above 0, got {}", g.ratio);
  static const std::vector<std::string_view> codes{"int8", "top_k"};
  static const std::vector<ConfigNeed> rows{
      {kType,
       codes,
       needs,
       "zero_optimization.stage",
       {"0", "1"},
       "; stages 2 and 3 have zero_optimization.zero_quantized_gradients instead"},
      {kType,
       codes,
       excludes,
       "optimizer.type",
       {"OneBitAdam", "OneBitLamb", "ZeroOneAdam"},
       "",
       ": \"{}\" excludes optimizer.type {}, which has a compression of its own"},
      {kType,
       codes,
       excludes,
       "optimizer.type",
       {"Muon"},
       "",
       ": \"{}\" excludes optimizer.type Muon, which gathers the momentum of reduced gradients"},
      {kType,
       codes,
       needs,
       "data_types.grad_accum_dtype",
       {"fp32"},
       "",
       ": \"{}\" needs data_types.grad_accum_dtype fp32, got {}"},
      {kType, codes, excludes, "sparse_gradients", {"true"}}};
  check_needs(c, rows);
}

// After its freeze a 1-bit optimizer does not reduce gradients: every rank updates the whole
// momentum with its own gradient, so ZeRO cannot partition gradients. Between synchronisations of
// 0/1 Adam ranks also differ in their parameters, so ZeRO partitions nothing.
void check_compressed(const Config& c) {
  if (!c.optimizer.compressed()) return;
  if (c.optimizer.factor_min > c.optimizer.factor_max) {
    refuse("optimizer.params.factor_min", "must not be above factor_max {}, got {}",
           c.optimizer.factor_max, c.optimizer.factor_min);
  }
  using enum ConfigNeed::Kind;
  static const std::vector<ConfigNeed> rows{
      {"optimizer.type",
       {"ZeroOneAdam"},
       needs,
       "zero_optimization.stage",
       {"0"},
       "",
       ": {} needs zero_optimization.stage 0, got {}: between two synchronisations every rank "
       "steps on all of the model by itself, for which it needs all states"},
      {"optimizer.type",
       {"OneBitAdam", "OneBitLamb"},
       needs,
       "zero_optimization.stage",
       {"0", "1"},
       "",
       ": {} needs zero_optimization.stage 0 or 1, got {}: every rank keeps the whole momentum and "
       "the whole of its own gradient, which stages 2 and 3 cut"}};
  check_needs(c, rows);
}

// Each rank rounds its own elements to codes, so the rounding errors depend on the number of ranks.
void warn_of_codes(Config& c) {
  if (!c.reproducible) return;
  auto warn = [&](const std::string& setting) {
    c.warnings.push_back("reproducible: bits still depend on the number of ranks, because with " +
                         setting + " each rank rounds its own elements to codes");
  };
  if (c.gradient_compression.on())
    warn(fmt::format("gradient_compression.type \"{}\"", c.gradient_compression.type));
  if (c.zero.quantized_gradients) warn("zero_optimization.zero_quantized_gradients true");
  if (c.optimizer.compressed()) warn("optimizer.type " + c.optimizer.type);
}

}  // namespace ds
