#include "engine/micro_steps.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/config/core_sections.h"

namespace ds {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kWeight = "micro_weight", kCount = "micro_steps",
                           kDivisor = "mean_micro_steps";

}  // namespace

void MicroSteps::begin() {
  done_ = 0;
  count_ = static_cast<int32_t>(config_.accumulation);
  has_gradient_ = cut_short_ = false;
  weights_.clear();
}

void MicroSteps::require_more(std::string_view call) const {
  if (all_done()) {
    raise(DS_ERROR_STATE, "{} comes after {} of {} micro-steps: ds_step must follow", call, done_,
          count_);
  }
}

void MicroSteps::require_weight() const {
  if (config_.by_tokens() && !weight_)
    raise(DS_ERROR_STATE,
          "ds_backward needs the weight of micro-step {}: ds_engine_set of micro_weight", done_);
}

void MicroSteps::end() {
  if (config_.by_tokens()) weights_.push_back(*std::exchange(weight_, std::nullopt));
  ++done_;
  has_gradient_ = false;
}

void MicroSteps::set(std::string_view name, double value, int64_t most) {
  if (name == kWeight) return set_weight(value);
  if (name == kCount) return set_count(value, most);
  ensure(name == kDivisor, "'{}' is not a number of micro-steps", name);
  set_divisor(value);
}

std::optional<double> MicroSteps::get(std::string_view name) const {
  if (name == kWeight) return weight_.value_or(kNaN);
  if (name == kCount) return count_;
  if (name == kDivisor) return divisor_ > 0 ? divisor_ : kNaN;
  return std::nullopt;
}

void MicroSteps::set_weight(double weight) {
  if (!config_.by_tokens())
    raise(DS_ERROR_STATE, "ds_engine_set of {} needs loss_average \"tokens\", got \"{}\"", kWeight,
          config_.loss_average);
  require(std::isfinite(weight) && weight >= 0,
          "micro_weight must be a finite number of at least 0, got {}", weight);
  require_more("ds_engine_set of micro_weight");
  weight_ = weight;
}

// The last micro-step is reduced differently from the others, and reductions begin while its
// gradients still arrive. So the number may change only between micro-steps.
void MicroSteps::set_count(double value, int64_t most) {
  if (std::isnan(value)) value = static_cast<double>(config_.accumulation);
  require(value >= 1 && value <= kMostAccumulation && value == std::floor(value),
          "micro_steps must be a whole number of 1 to {}, or NaN, got {}", kMostAccumulation,
          value);
  if (value > static_cast<double>(most)) {
    raise(
        DS_ERROR_UNSUPPORTED,
        "micro_steps must be at most {}, got {}: with `reproducible` the sums of a step are those "
        "of gradient_accumulation_steps {}",
        most, value, config_.accumulation);
  }
  const auto count = static_cast<int32_t>(value);
  if (count == count_) return;
  require(count >= done_,
          "micro_steps must be at least {}, the number of micro-steps that have "
          "ended, got {}",
          done_, count);
  if (has_gradient_)
    raise(DS_ERROR_STATE,
          "ds_engine_set of micro_steps must come before the first gradient of a micro-step, or "
          "after its ds_backward: micro-step {} has gradients",
          done_);
  if (all_done())
    raise(DS_ERROR_STATE,
          "ds_engine_set of micro_steps comes after the last of {} micro-steps: ds_step must "
          "follow",
          count_);
  count_ = count;
  cut_short_ = all_done();
}

void MicroSteps::set_divisor(double divisor) {
  if (config_.by_tokens())
    raise(DS_ERROR_STATE,
          "ds_engine_set of {} needs loss_average \"micro_batch\": with \"tokens\" the sum is "
          "divided by the weights",
          kDivisor);
  require(std::isnan(divisor) || (std::isfinite(divisor) && divisor > 0),
          "mean_micro_steps must be a positive number or NaN, got {}", divisor);
  divisor_ = std::isnan(divisor) ? 0 : divisor;
}

double MicroSteps::total(Communicator& ranks) const {
  const auto count = static_cast<size_t>(ranks.size());
  if (!config_.by_tokens())
    return (divisor_ > 0 ? divisor_ : static_cast<double>(done_)) * static_cast<double>(count);
  std::vector<double> all(weights_.size() * count);
  ranks.all_gather(weights_.data(), all.data(), weights_.size() * sizeof(double),
                   "weights of micro-steps");
  // All ranks add the weights in the same order, so they compute the same sum.
  double sum = 0;
  for (size_t m = 0; m < weights_.size(); ++m) {
    for (size_t r = 0; r < count; ++r) sum += all[r * weights_.size() + m];
  }
  return sum;
}

std::vector<double> MicroSteps::common() const {
  return {static_cast<double>(count_), cut_short_ ? 1.0 : 0.0, divisor_};
}

}  // namespace ds
