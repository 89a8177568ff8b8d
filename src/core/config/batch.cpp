#include <cstdint>
#include <tuple>

#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/core_sections.h"
#include "core/config/key.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

// The largest number of samples in a step, which is also the limit of train_batch_size.
constexpr auto kMostSamples = static_cast<int64_t>(kMost);

}  // namespace

// Completes train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps *
// world. Missing values are derived from the given ones by integer division, as in DeepSpeed. The
// equation is checked at the end.
void complete_batch(Config& config, int world) {
  int64_t& train = config.train_batch;
  int64_t& micro = config.micro_batch;
  int64_t& steps = config.accumulation;
  const bool has_train = config.origins.contains("train_batch_size");
  const bool has_micro = config.origins.contains("train_micro_batch_size_per_gpu");
  const bool has_steps = config.origins.contains("gradient_accumulation_steps");
  if (!has_train && !has_micro) {
    raise(DS_ERROR_CONFIG,
          "train_batch_size or train_micro_batch_size_per_gpu needs to be given; both are missing");
  }
  for (const auto& [given, value, name] :
       {std::tuple{has_train, train, "train_batch_size"},
        std::tuple{has_micro, micro, "train_micro_batch_size_per_gpu"},
        std::tuple{has_steps, steps, "gradient_accumulation_steps"}}) {
    if (given && value <= 0) refuse(name, "{} is not positive", value);
  }
  if (!has_steps) steps = has_train && has_micro ? train / micro / world : 1;
  if (!has_micro) micro = train / world / steps;
  int64_t product = 0;
  if (__builtin_mul_overflow(micro, steps, &product) ||
      __builtin_mul_overflow(product, world, &product) || (!has_train && product > kMostSamples)) {
    raise(DS_ERROR_CONFIG,
          "train_micro_batch_size_per_gpu {} * gradient_accumulation_steps {} * world size {} is "
          "above {}",
          micro, steps, world, kMostSamples);
  }
  if (!has_train) train = product;
  if (train != product || micro <= 0 || steps <= 0) {
    raise(DS_ERROR_CONFIG,
          "train_batch_size {} != train_micro_batch_size_per_gpu {} * gradient_accumulation_steps "
          "{} * world size {}{}",
          train, micro, steps, world,
          has_train && has_micro && has_steps ? "" : " (derived by integer division)");
  }
  if (steps > kMostAccumulation) {
    raise(DS_ERROR_CONFIG,
          "train_batch_size {} / train_micro_batch_size_per_gpu {} / world size {} makes "
          "gradient_accumulation_steps {}, above {}",
          train, micro, world, steps, kMostAccumulation);
  }
}

}  // namespace ds
