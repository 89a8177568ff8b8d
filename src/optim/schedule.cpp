// Learning rates as functions of the step.
//
// A schedule is a row: the parameters that scheduler.params may have, and a function from the step
// to the scalars that the update of a group uses. Nothing is remembered between steps, so a resumed
// run needs only its step count, and a step that was skipped for NaN or infinity does not advance
// the schedule.
//
// Five rows are DeepSpeed's (recordings: tests/data/semantics/lr_schedules.json). Its engine steps
// the optimizer first and then the scheduler, whose iteration starts at -1. So step k (from 0) uses
// iteration i = k - 1, and a warm-up uses the same rate in its first two steps. The other four,
// constant, linear, cosine and WSD, are those of Hugging Face's Trainer, where step k uses the k-th
// value. Their warm-ups begin at rate 0, except that WSD's begins at its minimum.
#include "optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr double kNotGiven = std::numeric_limits<double>::quiet_NaN();
constexpr double kMostSteps = 1e15;
using Kind = ScheduleNumber::Kind;
constexpr Limits some_steps{.low = 1, .high = kMostSteps},
    steps_or_none{.low = 0, .high = kMostSteps};

double number(const SchedulerConfig& s, const char* name, size_t group = 0) {
  const std::vector<double>& values = s.numbers.at(name);
  // A group that was added later uses the last value of the list.
  return values[std::min(group, values.size() - 1)];
}

double number_or(const SchedulerConfig& s, const char* name, size_t group, double other) {
  const double value = number(s, name, group);
  return std::isnan(value) ? other : value;
}

// Returns the share of DeepSpeed's warm-up that is done at iteration i >= 0. It rises from 0 to 1
// over at least two iterations, linearly or as log(i + 1) / log(n).
double warmup_share(const SchedulerConfig& s, double i) {
  const double n = std::max(2.0, number(s, "warmup_num_steps"));
  if (i >= n) return 1;
  if (s.words.at("warmup_type") == "linear") return i / n;
  return std::log(i + 1) * (1 / std::log(n));
}

// Sets the rate of WarmupLR and WarmupDecayLR. `after` is the share of the range between minimum
// and maximum that the rate has reached at iteration i; before iteration 0 the rate is the minimum.
void warm_up(const SchedulerConfig& s, size_t group, double i, double after,
             GroupScalars& scalars) {
  const double low = number(s, "warmup_min_lr", group),
               high = number_or(s, "warmup_max_lr", group, scalars.lr);
  scalars.lr = i < 0 ? low : low + after * (high - low);
}

void warmup_lr(const SchedulerConfig& s, size_t group, int64_t k, GroupScalars& scalars) {
  const auto i = static_cast<double>(k - 1);
  warm_up(s, group, i, warmup_share(s, i), scalars);
}

void warmup_decay_lr(const SchedulerConfig& s, size_t group, int64_t k, GroupScalars& scalars) {
  const auto i = static_cast<double>(k - 1);
  const double n = std::max(2.0, number(s, "warmup_num_steps")),
               total = number(s, "total_num_steps");
  const double left =
      i < n ? warmup_share(s, i) : std::max(0.0, (total - i) / std::max(1.0, total - n));
  warm_up(s, group, i, left, scalars);
}

void warmup_cosine_lr(const SchedulerConfig& s, size_t, int64_t k, GroupScalars& scalars) {
  const auto i = static_cast<double>(k - 1);
  const double n = std::max(2.0, number(s, "warmup_num_steps")),
               total = number(s, "total_num_steps");
  double ratio = 0;
  if (i >= n) {
    const double low = number(s, "cos_min_ratio"), length = std::max(1.0, total - n);
    const double progress = std::min(1.0, (i - n + 1) / length);
    ratio = std::max(0.0, low + (1 - low) * (1 + std::cos(std::numbers::pi * progress)) / 2);
  } else if (i >= 0) {
    const double low = number(s, "warmup_min_ratio");
    ratio = low + (1 - low) * warmup_share(s, i);
  }
  scalars.lr *= ratio;
}

// Returns the height of the cycle at iteration i: 0 at the ends, 1 at the peak. If that half of the
// cycle has stairs, the height is rounded down to a stair. The formula without stairs is
// DeepSpeed's, term by term.
double cycle_share(const SchedulerConfig& s, double i) {
  const double first = number(s, "cycle_first_step_size"),
               second = number_or(s, "cycle_second_step_size", 0, first), whole = first + second,
               first_stairs = number(s, "cycle_first_stair_count"),
               second_stairs = number_or(s, "cycle_second_stair_count", 0, first_stairs),
               at = i + 1, cycle = std::floor(1 + at / whole), x = 1 + at / whole - cycle,
               half = first / whole;
  if (first_stairs > 0 || second_stairs > 0) {
    const double within = std::fmod(at, whole);
    const bool up = within <= first;
    const double stairs = up ? first_stairs : second_stairs;
    if (stairs > 0) {
      const double place = up ? within / first * stairs : (whole - within) / second * stairs;
      return std::floor(place) / stairs;
    }
  }
  return x <= half ? x / half : (x - 1) / (half - 1);
}

// Returns the factor of OneCycle's decay at iteration i, counted from the end of the cycle. The
// rate is divided by its factor, and the momentum is multiplied by its factor.
double decayed(const SchedulerConfig& s, const char* rate, double i) {
  const double size = number(s, "decay_step_size");
  return size > 0 ? 1 + number(s, rate) * (i / size) : 1;
}

void one_cycle(const SchedulerConfig& s, size_t group, int64_t k, GroupScalars& scalars) {
  const auto i = static_cast<double>(k - 1);
  const double first = number(s, "cycle_first_step_size"),
               length = first + number_or(s, "cycle_second_step_size", 0, first),
               low = number(s, "cycle_min_lr", group), high = number(s, "cycle_max_lr", group),
               low_momentum = number(s, "cycle_min_mom"),
               high_momentum = number(s, "cycle_max_mom");
  double momentum = 0;
  // Before iteration 0 the values are those that DeepSpeed's constructor sets.
  if (i < 0) {
    scalars.lr = low;
    momentum = low_momentum;
  } else if (i < length) {
    const double share = cycle_share(s, i);
    scalars.lr = low + (high - low) * share;
    momentum = high_momentum - (high_momentum - low_momentum) * share;
  } else {
    scalars.lr = low / decayed(s, "decay_lr_rate", i - length + 1);
    momentum = high_momentum * decayed(s, "decay_mom_rate", i - length + 1);
  }
  if (number(s, "cycle_momentum") == 0) return;
  scalars.beta1 = momentum;
  scalars.beta2 = 0.99;
}

void lr_range_test(const SchedulerConfig& s, size_t group, int64_t k, GroupScalars& scalars) {
  double intervals = static_cast<double>(k) / number(s, "lr_range_test_step_size");
  if (number(s, "lr_range_test_staircase") != 0) intervals = std::floor(intervals);
  scalars.lr = number(s, "lr_range_test_min_lr", group) *
               (1 + number(s, "lr_range_test_step_rate") * intervals);
}

// Returns the share of the warm-up of Hugging Face's Trainer that is done at step k, and 1 after
// it.
double linear_warmup(const SchedulerConfig& s, double k) {
  const double n = number(s, "warmup_num_steps");
  return k < n ? k / std::max(1.0, n) : 1;
}

void constant(const SchedulerConfig& s, size_t, int64_t k, GroupScalars& scalars) {
  scalars.lr *= linear_warmup(s, static_cast<double>(k));
}

// Returns the share of the rate above its minimum that is left after `share` of the schedule, along
// a cosine of num_cycles waves.
double cosine_left(const SchedulerConfig& s, double share) {
  return 0.5 * (1 + std::cos(std::numbers::pi * number(s, "num_cycles") * 2 * share));
}

// Scales the rate to its minimum plus the share `left` of the range above the minimum.
void above_least(const SchedulerConfig& s, double left, GroupScalars& scalars) {
  const double low = number(s, "min_lr_ratio");
  scalars.lr *= std::max(0.0, left * (1 - low) + low);
}

void linear(const SchedulerConfig& s, size_t, int64_t k, GroupScalars& scalars) {
  const auto x = static_cast<double>(k);
  const double n = number(s, "warmup_num_steps"), total = number(s, "total_num_steps");
  if (x < n) {
    scalars.lr *= linear_warmup(s, x);
  } else {
    above_least(s, std::max(0.0, (total - x) / std::max(1.0, total - n)), scalars);
  }
}

void cosine(const SchedulerConfig& s, size_t, int64_t k, GroupScalars& scalars) {
  const auto x = static_cast<double>(k);
  const double n = number(s, "warmup_num_steps"), total = number(s, "total_num_steps");
  if (x < n) {
    scalars.lr *= linear_warmup(s, x);
  } else {
    above_least(s, cosine_left(s, std::min(1.0, (x - n) / std::max(1.0, total - n))), scalars);
  }
}

// Sets the rate of WSD (warm-up, stable, decay): it rises from the minimum, stays, and falls to the
// minimum again within the last decay_num_steps of total_num_steps.
void wsd(const SchedulerConfig& s, size_t, int64_t k, GroupScalars& scalars) {
  const auto x = static_cast<double>(k);
  const double n = number(s, "warmup_num_steps"), length = number(s, "decay_num_steps"),
               total = number(s, "total_num_steps");
  const bool warm = x < n;
  if (!warm && x < total - length) return;
  const double done = warm ? linear_warmup(s, x) : (x - (total - length)) / std::max(1.0, length);
  const std::string& way = s.words.at(warm ? "warmup_type" : "decay_type");
  double left = 0;
  if (warm) {
    left = way == "cosine"   ? 0.5 * (1 - std::cos(std::numbers::pi * done))
           : way == "linear" ? done
                             : 1 - std::sqrt(1 - done);
  } else if (x < total) {
    left = way == "cosine"   ? cosine_left(s, done)
           : way == "linear" ? 1 - done
                             : 1 - std::sqrt(done);
  }
  above_least(s, left, scalars);
}

constexpr ScheduleNumber min_lr{"warmup_min_lr", Kind::real, 0, not_negative, true},
    max_lr{"warmup_max_lr", Kind::real, kNotGiven, not_negative, true},
    warmup{"warmup_num_steps", Kind::steps, 1000, some_steps},
    no_warmup{"warmup_num_steps", Kind::steps, 0, steps_or_none},
    total{"total_num_steps", Kind::steps, kNotGiven, some_steps},
    least{"min_lr_ratio", Kind::real, 0, {.low = 0, .high = 1}},
    cycles{"num_cycles", Kind::real, 0.5, not_negative};

constexpr const char* kWarmupTypes[] = {"log", "linear"};
constexpr const char* kWsdWarmupTypes[] = {"linear", "cosine", "1-sqrt"};
constexpr const char* kWsdDecayTypes[] = {"cosine", "linear", "1-sqrt"};
constexpr ScheduleWord kWarmupWords[] = {{"warmup_type", kWarmupTypes}};
constexpr ScheduleWord kWsdWords[] = {{"warmup_type", kWsdWarmupTypes},
                                      {"decay_type", kWsdDecayTypes}};

constexpr ScheduleNumber kWarmup[] = {warmup, min_lr, max_lr};
constexpr ScheduleNumber kWarmupDecay[] = {
    total, warmup, min_lr, {"warmup_max_lr", Kind::real, 1e-3, not_negative, true}};
constexpr ScheduleNumber kWarmupCosine[] = {total,
                                            warmup,
                                            {"warmup_min_ratio", Kind::real, 0, not_negative},
                                            {"cos_min_ratio", Kind::real, 1e-4, not_negative}};
constexpr ScheduleNumber kOneCycle[] = {
    {"cycle_min_lr", Kind::real, kNotGiven, not_negative, true},
    {"cycle_max_lr", Kind::real, kNotGiven, not_negative, true},
    {"decay_lr_rate", Kind::real, 0, not_negative},
    {"cycle_first_step_size", Kind::real, 2000, {.low = 1, .high = kMostSteps}},
    {"cycle_second_step_size", Kind::real, kNotGiven, {.low = 0, .high = kMostSteps}},
    {"cycle_first_stair_count", Kind::steps, 0, steps_or_none},
    {"cycle_second_stair_count", Kind::steps, kNotGiven, steps_or_none},
    {"decay_step_size", Kind::real, 0, {.low = 0, .high = kMostSteps}},
    {"cycle_momentum", Kind::flag, 1},
    {"cycle_min_mom", Kind::real, 0.8, decay},
    {"cycle_max_mom", Kind::real, 0.9, decay},
    {"decay_mom_rate", Kind::real, 0, not_negative}};
constexpr ScheduleNumber kRange[] = {{"lr_range_test_min_lr", Kind::real, 1e-3, not_negative, true},
                                     {"lr_range_test_step_size", Kind::steps, 2000, some_steps},
                                     {"lr_range_test_step_rate", Kind::real, 1, not_negative},
                                     {"lr_range_test_staircase", Kind::flag, 0}};
constexpr ScheduleNumber kConstant[] = {no_warmup};
constexpr ScheduleNumber kToTheEnd[] = {total, no_warmup, least};
constexpr ScheduleNumber kCosine[] = {total, no_warmup, least, cycles};
constexpr ScheduleNumber kWsd[] = {
    total, no_warmup, least, cycles, {"decay_num_steps", Kind::steps, kNotGiven, steps_or_none}};

constexpr ScheduleType kTypes[] = {
    {"WarmupLR", kWarmup, kWarmupWords, warmup_lr},
    {"WarmupDecayLR", kWarmupDecay, kWarmupWords, warmup_decay_lr},
    {"WarmupCosineLR", kWarmupCosine, kWarmupWords, warmup_cosine_lr},
    {"OneCycle", kOneCycle, {}, one_cycle},
    {"LRRangeTest", kRange, {}, lr_range_test},
    {"constant", kConstant, {}, constant},
    {"linear", kToTheEnd, {}, linear},
    {"cosine", kCosine, {}, cosine},
    {"WSD", kWsd, kWsdWords, wsd}};

}  // namespace

std::span<const ScheduleType> schedule_types() { return kTypes; }

const ScheduleType* find_schedule(std::string_view type) {
  const auto* row =
      std::ranges::find_if(kTypes, [&](const ScheduleType& one) { return one.type == type; });
  return row == std::end(kTypes) ? nullptr : row;
}

SchedulerConfig make_schedule(std::string_view type, const std::map<std::string, double>& numbers) {
  SchedulerConfig out;
  out.type = type;
  const ScheduleType* row = find_schedule(type);
  ensure(row != nullptr, "no schedule '{}'", type);
  for (const ScheduleNumber& number : row->numbers) {
    auto given = numbers.find(number.name);
    out.numbers[number.name] = {given == numbers.end() ? number.value : given->second};
  }
  for (const ScheduleWord& word : row->words) out.words[word.name] = word.values[0];
  return out;
}

void apply_schedule(const SchedulerConfig& scheduler, size_t group, int64_t k,
                    GroupScalars& scalars) {
  const ScheduleType* type = find_schedule(scheduler.type);
  if (!type) return;
  // Both rates of a group follow the schedule. A row sets only `lr`, so it runs once for each rate.
  GroupScalars beside = scalars;
  beside.lr = scalars.adam_lr;
  type->apply(scheduler, group, k, beside);
  type->apply(scheduler, group, k, scalars);
  scalars.adam_lr = beside.lr;
}

}  // namespace ds
