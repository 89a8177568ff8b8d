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
  // The default. If it is NaN, schedule_types() says which value is used instead.
  double value = 0;
  Limits limits = {};
  // Whether the number may be a list with a value for each group.
  bool of_groups = false;
};

// A parameter of a schedule whose value is one of a few words.
struct ScheduleWord {
  const char* name;
  // The first word is the default.
  std::span<const char* const> values;
};

// A schedule and the value of scheduler.type that selects it.
struct ScheduleType {
  const char* type;
  std::span<const ScheduleNumber> numbers;
  std::span<const ScheduleWord> words;
  // Sets the scalars of a group for optimizer step k, counted from 0. `scalars` has the group's own
  // values before the call.
  void (*apply)(const SchedulerConfig& scheduler, size_t group, int64_t k, GroupScalars& scalars);
};

// Returns all schedules. Numbers whose default is NaN have these values if they are not given:
// warmup_max_lr is the group's own rate, cycle_second_step_size and cycle_second_stair_count are
// those of the first half, and decay_num_steps is a tenth of total_num_steps. total_num_steps,
// cycle_min_lr and cycle_max_lr must be given.
std::span<const ScheduleType> schedule_types();

// Returns the row of a type, or null.
const ScheduleType* find_schedule(std::string_view type);

// Returns a configuration of the type with the given numbers and the defaults of all others.
SchedulerConfig make_schedule(std::string_view type,
                              const std::map<std::string, double>& numbers = {});

// Sets both rates of a group, and with OneCycle's cycle_momentum also its betas, for optimizer step
// k, counted from 0. Without a schedule the scalars stay as they are.
void apply_schedule(const SchedulerConfig& scheduler, size_t group, int64_t k,
                    GroupScalars& scalars);

}  // namespace ds
