#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/base/group_scalars.h"
#include "core/config/config.h"
#include "core/config/values.h"

namespace ds {

// A number among the parameters of a schedule.
struct ScheduleNumber {
  enum class Kind { real, steps, flag };
  const char* name;
  Kind kind = Kind::real;
  double value = 0;  // when the document does not give it; NaN: see `schedule_types`
  Limits limits = {};
  bool of_groups = false;  // may be a list with a value for each group
};

struct ScheduleWord {
  const char* name;
  std::span<const char* const> values;  // the first one when the document does not give it
};

// A value of scheduler.type.
struct ScheduleType {
  const char* type;
  std::span<const ScheduleNumber> numbers;
  std::span<const ScheduleWord> words;
  // Sets what optimizer step k, counted from 0, uses for a group, whose own values `scalars` has.
  void (*apply)(const SchedulerConfig& scheduler, size_t group, int64_t k, GroupScalars& scalars);
};

// NaN among the defaults: warmup_max_lr is the group's own rate, cycle_second_step_size and
// cycle_second_stair_count are those of the first half; total_num_steps, cycle_min_lr and
// cycle_max_lr must be given.
std::span<const ScheduleType> schedule_types();

// The row of a type; nullptr: there is none.
const ScheduleType* find_schedule(std::string_view type);

// A configuration of the type with its defaults, and these numbers in place of theirs.
SchedulerConfig make_schedule(std::string_view type,
                              const std::map<std::string, double>& numbers = {});

// Sets the learning rate, and with OneCycle the momentum or first beta, of optimizer step k (from
// 0).
void apply_schedule(const SchedulerConfig& scheduler, size_t group, int64_t k,
                    GroupScalars& scalars);

}  // namespace ds
