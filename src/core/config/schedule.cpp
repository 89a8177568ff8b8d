#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/config/config.h"

namespace ds {
namespace {

// Share of the warm-up done at scheduler iteration i >= 0: 0 to 1 over max(2, warmup_num_steps) iterations.
double warmup_share(const SchedulerConfig& s, int64_t i) {
  const int64_t n = std::max<int64_t>(2, s.warmup_num_steps);
  if (i >= n) return 1;
  const double x = static_cast<double>(i);
  if (s.warmup_linear) return x / static_cast<double>(n);
  return std::log(x + 1) * (1 / std::log(static_cast<double>(n)));
}

double cosine_ratio(const SchedulerConfig& s, int64_t i) {
  const int64_t n = std::max<int64_t>(2, s.warmup_num_steps);
  if (i < n) return s.warmup_min_ratio + (1 - s.warmup_min_ratio) * warmup_share(s, i);
  const auto length = static_cast<double>(std::max<int64_t>(1, s.total_num_steps - n));
  const double progress = std::min(1.0, static_cast<double>(i - n + 1) / length);
  const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return std::max(0.0, s.cos_min_ratio + (1 - s.cos_min_ratio) * cosine);
}

}  // namespace

// DeepSpeed's engine steps the optimizer first and the scheduler, whose iteration starts at -1, afterwards:
// step k uses iteration k - 1.
double learning_rate(const Config& config, double lr, int64_t step) {
  const SchedulerConfig& s = config.scheduler;
  const int64_t i = step - 1;
  if (s.type == "WarmupLR") {
    const double max = s.warmup_max_given ? s.warmup_max_lr : lr;
    return i < 0 ? s.warmup_min_lr : s.warmup_min_lr + warmup_share(s, i) * (max - s.warmup_min_lr);
  }
  if (s.type == "WarmupCosineLR") return i < 0 ? 0 : lr * cosine_ratio(s, i);
  return lr;
}

}  // namespace ds
