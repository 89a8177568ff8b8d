#include "engine/step_control.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/config/values.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace ds {

StepControl::StepControl(const Config& config, int world) : config_(config) {
  scalars_.seed = config.seed;
  scalars_.leaves = config.accumulation * world;
  scalars_.weight = static_cast<double>(scalars_.leaves);
  configured_.push_back(group_scalars(config.optimizer));
  for (const ParamGroup& group : config.optimizer.groups)
    configured_.push_back(group_scalars(config.optimizer, group));
  set_.resize(configured_.size());
  rate_sums_.resize(configured_.size());
  if (config.scales_loss()) scaler_ = first_scaler(config.loss_scale);
  choose_groups();
}

void StepControl::leave_out(const IdVector<ParamId, char>& params) {
  left_out_.now = params;
  left_out_.updates.resize(params.size(), 0);
}

void StepControl::resume(int64_t steps, int64_t updates, uint64_t seed) {
  scalars_.step = steps;
  scalars_.updates = updates;
  scalars_.seed = seed;
  choose_groups();
}

namespace {

// A parsed name: "lr" for all groups, or "param_groups[1].lr" for one.
struct NumberName {
  std::optional<size_t> group;
  std::string_view number;
};

NumberName parse_name(std::string_view name) {
  constexpr std::string_view prefix = "param_groups[";
  size_t end = name.find("].");
  if (!name.starts_with(prefix) || end == name.npos) return {std::nullopt, name};
  size_t group = 0;
  const char *first = name.data() + prefix.size(), *last = name.data() + end;
  auto [stop, error] = std::from_chars(first, last, group);
  // Any other text is treated as the name of a number, which is then not found.
  if (error != std::errc() || stop != last) return {std::nullopt, name};
  return {group, name.substr(end + 2)};
}

}  // namespace

// Applies the numbers in this order: the configuration, the schedule, the numbers that a caller has
// set, and the factor of scale_rates(). choose_groups() is called after a change of these numbers
// or of the counters, and when a step begins, so groups_ has the numbers that the next update
// reads.
void StepControl::choose_groups() {
  groups_ = configured_;
  const std::vector<GroupNumber> numbers = group_numbers(config_.optimizer);
  for (size_t g = 0; g < groups_.size(); ++g) {
    apply_schedule(config_.scheduler, g, scalars_.updates, groups_[g]);
    for (const auto& [name, value] : set_[g])
      groups_[g].*find_group_number(numbers, name)->value = value;
    for (double GroupScalars::*rate : kRates) groups_[g].*rate *= rate_factor_;
    // The sum is formed in f32, the type in which checkpoints keep it.
    groups_[g].rate_sum = static_cast<double>(rate_sums_[g] + static_cast<float>(groups_[g].lr));
  }
  scalars_.group = groups_[0];
}

void StepControl::set(std::string_view name, double value) {
  const auto [group, wanted] = parse_name(name);
  const std::vector<GroupNumber> numbers = group_numbers(config_.optimizer);
  const GroupNumber* number = find_group_number(numbers, wanted);
  if (!number) {
    std::vector<std::string> names;
    for (const GroupNumber& n : numbers) names.emplace_back(n.name);
    raise(DS_ERROR_NOT_FOUND,
          "name must be {}, or one of them after 'param_groups[N].', got '{}'{}",
          fmt::join(names, ", "), name, did_you_mean(std::string(wanted), names));
  }
  if (group && *group >= set_.size())
    raise(DS_ERROR_NOT_FOUND, "name '{}': groups are numbered 0 to {}, got {}", name,
          set_.size() - 1, *group);
  const Limits& limits = number->limits;
  require(
      std::isnan(value) || (value >= limits.low && std::isfinite(value) && value < limits.below),
      "{} must be a finite number of at least {}{}, or NaN, got {}", name, limits.low,
      std::isfinite(limits.below) ? fmt::format(" and below {}", limits.below) : "", value);
  const std::string wrong = refusal_of(config_.optimizer, wanted, value);
  require(wrong.empty(), "{} {}", name, wrong);
  for (size_t g = group.value_or(0); g < (group ? *group + 1 : set_.size()); ++g) {
    // "lr" refers to both rates of a group that has two.
    for (const GroupNumber& meant : numbers_meant(config_.optimizer, wanted))
      keep_set(g, meant, value);
  }
  choose_groups();
}

void StepControl::keep_set(size_t group, const GroupNumber& number, double value) {
  if (std::isnan(value)) {
    set_[group].erase(number.name);
  } else {
    set_[group][number.name] = value;
  }
}

void StepControl::scale_rates(double factor) {
  rate_factor_ = factor;
  choose_groups();
}

std::optional<double> StepControl::get(std::string_view name) const {
  if (name == "param_groups") return static_cast<double>(groups_.size());
  const auto [group, wanted] = parse_name(name);
  const std::vector<GroupNumber> numbers = group_numbers(config_.optimizer);
  const GroupNumber* number = find_group_number(numbers, wanted);
  if (!number || group.value_or(0) >= groups_.size()) return std::nullopt;
  return groups_[group.value_or(0)].*number->value;
}

void StepControl::add_group(const ParamGroup& values) {
  configured_.push_back(group_scalars(config_.optimizer, values));
  set_.emplace_back();
  rate_sums_.emplace_back();
  choose_groups();
}

void StepControl::take_rate_sums(int64_t first, std::span<const float> sums) {
  std::copy(sums.begin(), sums.end(), rate_sums_.begin() + first);
}

void StepControl::forget_rate_sums() { std::fill(rate_sums_.begin(), rate_sums_.end(), 0.0f); }

void StepControl::take_set(const std::vector<SetNumbers>& numbers) {
  for (size_t g = 0; g < set_.size(); ++g) {
    set_[g].clear();
    if (g >= numbers.size()) continue;
    for (const auto& [name, value] : numbers[g]) {
      for (const GroupNumber& meant : numbers_meant(config_.optimizer, name))
        keep_set(g, meant, value);
    }
  }
  choose_groups();
}

void StepControl::take_scaler(const LossScaler& scaler) {
  // If the configuration fixes the scale, the given scaler is ignored.
  if (searches_scale(config_)) scaler_ = scaler;
}

void StepControl::begin_step() {
  scalars_.train = 1;
  scalars_.loss_scale = scaler_.scale;
  scalars_.skip = 0;
  bad_gradients_.clear();
  choose_groups();
}

void StepControl::gradient_written(const std::string& param, bool finite) {
  if (finite) {
    bad_gradients_.erase(param);
  } else {
    bad_gradients_.insert(param);
  }
}

const StepResult& StepControl::finish(std::string reason) {
  ++scalars_.step;
  if (!skips()) {
    const Optimizer& optimizer = optimizer_of(config_.optimizer);
    const bool local = optimizer.form(config_.optimizer, scalars_.updates) == StepForm::local;
    // A local step adds its rate to the sum since ranks last agreed; any other step starts a new
    // sum.
    for (size_t g = 0; g < rate_sums_.size(); ++g)
      rate_sums_[g] = local ? static_cast<float>(groups_[g].rate_sum) : 0.0f;
    ++scalars_.updates;
    for (ParamId param : left_out_.now.ids()) left_out_.updates[param] += left_out_.now[param];
  }
  left_out_.now.clear();
  const bool f16 = config_.scales_loss();
  // A step without data, or one whose leaves have no weight, says nothing about the scale.
  const bool overflow = skips() && weight() > 0,
             floor = f16 && overflow && at_floor(config_.loss_scale, scaler_);
  const LossScaler before = scaler_;
  if (f16 && weight() > 0) scaler_ = next_scaler(config_.loss_scale, scaler_, overflow);
  if (f16 && skips()) {
    reason += scaler_.scale == before.scale ? fmt::format("; the loss scale is {}", before.scale)
                                            : fmt::format("; the loss scale falls from {} to {}",
                                                          before.scale, scaler_.scale);
  }
  last_ = {scalars_.step,      scalars_.updates,    scalars_.loss,
           scalars_.grad_norm, scalars_.group.lr,   skips(),
           std::move(reason),  scalars_.loss_scale, floor};
  rate_factor_ = 1;
  choose_groups();
  return last_;
}

}  // namespace ds
