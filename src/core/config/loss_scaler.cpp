// Problem. In f16, gradients up to 2^-25 become zero and gradients from 65520 on infinite, and most
// gradients are small. Multiplying the loss by a scale multiplies every gradient by it, and the
// update divides the gradients by it again. The largest scale under which nothing overflows keeps
// most of the small gradients, but it changes as the model learns.
//
// Algorithm, as in DeepSpeed. The scale doubles after every `window` steps without an overflow. A
// step that overflows is skipped, and the scale halves, but never falls below the minimum. With a
// hysteresis of h it halves at the h-th overflow only, and then at each further one. The hysteresis
// is restored when the scale grows or, if it is `consecutive`, in every clean step.
//
// Two details of DeepSpeed affect the sequence of scales. A window begins one step late, with the
// second clean step after an overflow, so the first growth comes after window + 1 clean steps and
// each further growth after `window` more. A hysteresis of 0 only decreases and never reaches 1, at
// which the scale falls, so the scale never halves.
//
// Without ZeRO, DeepSpeed uses other scalers, whose sequences are those of a hysteresis of 1.
// torch's GradScaler, which DeepSpeed uses with autocast, begins its window with the first clean
// step (`from_first`). Tests in tests/core/config compare next_scaler() with recordings of all
// these scalers.
//
// Source. Micikevicius et al., "Mixed precision training" (arXiv:1710.03740), section 3.2.
#include "core/config/loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace ds {
namespace {

bool dynamic(const LossScaleConfig& config) { return config.loss_scale == 0; }

// Returns whether the next overflow lowers the scale.
bool exhausted(const LossScaleConfig& config, const LossScaler& scaler) {
  return config.hysteresis == 1 || scaler.hysteresis == 1;
}

}  // namespace

LossScaler first_scaler(const LossScaleConfig& config) {
  const bool moves = dynamic(config);
  return {.scale = moves ? std::ldexp(1.0, static_cast<int>(config.initial_scale_power))
                         : config.loss_scale,
          .hysteresis = moves ? config.hysteresis : 0};
}

LossScaler next_scaler(const LossScaleConfig& config, const LossScaler& scaler, bool overflow) {
  LossScaler next = scaler;
  ++next.steps;
  if (!dynamic(config)) return next;
  if (overflow) {
    next.last_overflow = scaler.steps;
    if (exhausted(config, scaler)) {
      next.scale = std::max(scaler.scale / 2, config.min_loss_scale);
    } else {
      --next.hysteresis;
    }
    return next;
  }
  if (config.consecutive_hysteresis) next.hysteresis = config.hysteresis;
  const int64_t clean = scaler.steps - scaler.last_overflow - (config.from_first ? 0 : 1);
  if (clean > 0 && clean % config.window == 0) {
    next.hysteresis = config.hysteresis;
    next.scale *= 2;
  }
  return next;
}

bool at_floor(const LossScaleConfig& config, const LossScaler& scaler) {
  return dynamic(config) && exhausted(config, scaler) && scaler.scale == config.min_loss_scale;
}

void settle_scale(LossScaleConfig& config) {
  config.initial_scale_power = std::min<int64_t>(config.initial_scale_power, 10);
}

bool searches_scale(const Config& config) {
  return config.scales_loss() && dynamic(config.loss_scale);
}

}  // namespace ds
