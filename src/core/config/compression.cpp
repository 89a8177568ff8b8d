#include <fmt/core.h>

#include <string>

#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/schema.h"

namespace ds {

// Gradients stay on their rank until the end of the step, where all of each goes through codes.
void check_gradient_compression(const Config& c) {
  const GradientCompressionConfig& g = c.gradient_compression;
  if (g.type != "top_k" && c.origins.contains("gradient_compression.ratio")) {
    raise(DS_ERROR_CONFIG, "{}: needs gradient_compression.type \"top_k\", got \"{}\"",
          KeyName("gradient_compression.ratio"), g.type);
  }
  if (!g.on()) return;
  const KeyName key("gradient_compression.type");
  if (g.ratio <= 0)
    raise(DS_ERROR_CONFIG, "{}: must be above 0, got {}", KeyName("gradient_compression.ratio"),
          g.ratio);
  if (c.zero.stage > 1) {
    raise(DS_ERROR_CONFIG,
          "{}: \"{}\" needs zero_optimization.stage 0 or 1, got {}, where zero_quantized_gradients "
          "is",
          key, g.type, c.zero.stage);
  }
  if (c.optimizer.compressed()) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" excludes optimizer.type {}, which compresses by itself", key,
          g.type, c.optimizer.type);
  }
  if (c.optimizer.type == "Muon")
    raise(DS_ERROR_CONFIG,
          "{}: \"{}\" excludes optimizer.type Muon, which gathers momentum of reduced gradients",
          key, g.type);
  if (c.grad_accum != DS_DTYPE_F32)
    raise(DS_ERROR_CONFIG, "{}: \"{}\" needs data_types.grad_accum_dtype fp32, got {}", key, g.type,
          c.grad_accum == DS_DTYPE_F16 ? "fp16" : "bf16");
  if (c.sparse_gradients)
    raise(DS_ERROR_CONFIG, "{}: \"{}\" excludes sparse_gradients true", key, g.type);
}

// Every rank updates the whole momentum with its own gradient once gradients are not reduced any
// more.
void check_compressed(const Config& c) {
  if (!c.optimizer.compressed()) return;
  if (c.optimizer.factor_min > c.optimizer.factor_max) {
    raise(DS_ERROR_CONFIG, "{}: must not be above factor_max {}, got {}",
          KeyName("optimizer.params.factor_min"), c.optimizer.factor_max, c.optimizer.factor_min);
  }
  if (c.optimizer.type == "ZeroOneAdam" && c.zero.stage > 0) {
    raise(DS_ERROR_CONFIG,
          "{}: ZeroOneAdam needs zero_optimization.stage 0, got {}: between two synchronisations "
          "every rank "
          "steps on all of the model by itself, for which it needs all states",
          KeyName("optimizer.type"), c.zero.stage);
  }
  if (c.zero.stage > 1) {
    raise(DS_ERROR_CONFIG,
          "{}: {} needs zero_optimization.stage 0 or 1, got {}: every rank keeps the whole "
          "momentum and the "
          "whole of its own gradient, which stages 2 and 3 cut",
          KeyName("optimizer.type"), c.optimizer.type, c.zero.stage);
  }
}

void warn_of_codes(Config& c) {
  if (!c.reproducible) return;
  auto warn = [&](const std::string& setting) {
    c.warnings.push_back(
        "reproducible: bits depend on the number of ranks all the same, because of " + setting +
        ", whose codes are of one rank's elements");
  };
  if (c.gradient_compression.on())
    warn(fmt::format("gradient_compression.type \"{}\"", c.gradient_compression.type));
  if (c.zero.quantized_gradients) warn("zero_optimization.zero_quantized_gradients true");
  if (c.optimizer.compressed()) warn("optimizer.type " + c.optimizer.type);
}

}  // namespace ds
