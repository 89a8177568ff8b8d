#include "core/config/schedule_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/key_kinds.h"
#include "core/config/schedule.h"

namespace ds {
namespace {

// The type of a schedule, with what its parameters are when the document does not give them.
Key scheduler_type_key() {
  auto set = [](Config& c, const Json& given) {
    std::vector<std::string> types;
    for (const ScheduleType& type : schedule_types()) types.emplace_back(type.type);
    c.scheduler = make_schedule(choose("scheduler.type", given, types, {}));
  };
  auto get = [](const Config& c) {
    return c.scheduler.type.empty() ? Json() : Json(c.scheduler.type);
  };
  return {"scheduler.type", "", set, get};
}

// The parameter `name` among those of one kind that the configured schedule has; nullptr: it has
// none.
template <typename Parameter>
const Parameter* schedule_parameter(const Config& c,
                                    std::span<const Parameter> ScheduleType::*of_kind,
                                    const std::string& name) {
  const ScheduleType* type = find_schedule(c.scheduler.type);
  if (!type) return nullptr;
  const std::span<const Parameter> all = type->*of_kind;
  auto found =
      std::find_if(all.begin(), all.end(), [&](const Parameter& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const ScheduleNumber* schedule_number(const Config& c, const std::string& name) {
  return schedule_parameter(c, &ScheduleType::numbers, name);
}

const ScheduleWord* schedule_word(const Config& c, const std::string& name) {
  return schedule_parameter(c, &ScheduleType::words, name);
}

[[noreturn]] void no_parameter_of(const std::string& path, const Config& c) {
  raise(DS_ERROR_CONFIG, "{}: no parameter of scheduler.type \"{}\"", KeyName(path),
        c.scheduler.type);
}

double read_schedule_number(const std::string& path, const Json& given,
                            const ScheduleNumber& number) {
  double value = 0;
  if (number.kind == ScheduleNumber::Kind::flag) {
    bool on = false;
    read_value(path, given, {}, on);
    return on ? 1 : 0;
  }
  if (number.kind == ScheduleNumber::Kind::steps) {
    int64_t steps = 0;
    read_value(path, given, number.limits, steps);
    return static_cast<double>(steps);
  }
  read_value(path, given, number.limits, value);
  return value;
}

Json write_schedule_number(double value, const ScheduleNumber& number) {
  if (std::isnan(value)) return {};
  switch (number.kind) {
    case ScheduleNumber::Kind::flag:
      return Json(value != 0);
    case ScheduleNumber::Kind::steps:
      return Json(static_cast<int64_t>(value));
    case ScheduleNumber::Kind::real:
      break;
  }
  return Json(value);
}

// A list has a value for each group of parameters, as in DeepSpeed: one where there is one group.
Key schedule_number_key(const std::string& name) {
  const std::string path = "scheduler.params." + name;
  auto set = [path, name](Config& c, const Json& given) {
    const ScheduleNumber* number = schedule_number(c, name);
    if (!number) no_parameter_of(path, c);
    std::vector<double>& values = c.scheduler.numbers[name];
    values.clear();
    const bool list = given.is_array();
    const size_t count = list ? given.array().size() : 1, groups = 1 + c.optimizer.groups.size();
    if (list && count != (number->of_groups ? groups : 1)) {
      raise(DS_ERROR_CONFIG, "{}: expected a number{}, got {} values", KeyName(path),
            number->of_groups ? fmt::format(" or {} of them, one for each group", groups) : "",
            count);
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string at = list ? fmt::format("{}[{}]", path, i) : path;
      values.push_back(read_schedule_number(at, list ? given.array()[i] : given, *number));
    }
  };
  auto get = [name](const Config& c) {
    const ScheduleNumber* number = schedule_number(c, name);
    if (!number) return Json();
    const std::vector<double>& values = c.scheduler.numbers.at(name);
    if (values.size() == 1) return write_schedule_number(values[0], *number);
    Json::Array list;
    for (double value : values) list.push_back(write_schedule_number(value, *number));
    return Json(list);
  };
  return {path, "", set, get};
}

Key schedule_word_key(const std::string& name) {
  const std::string path = "scheduler.params." + name;
  auto set = [path, name](Config& c, const Json& given) {
    const ScheduleWord* word = schedule_word(c, name);
    if (!word) no_parameter_of(path, c);
    c.scheduler.words[name] = choose(path, given, {word->values.begin(), word->values.end()}, {});
  };
  auto get = [name](const Config& c) {
    auto found = c.scheduler.words.find(name);
    return found == c.scheduler.words.end() ? Json() : Json(found->second);
  };
  return {path, "", set, get};
}

}  // namespace

void scheduler_keys(std::vector<Key>& keys) {
  keys.push_back(scheduler_type_key());
  std::vector<std::string> made;
  auto fresh = [&](const char* name) {
    if (std::find(made.begin(), made.end(), name) != made.end()) return false;
    made.emplace_back(name);
    return true;
  };
  for (const ScheduleType& type : schedule_types()) {
    for (const ScheduleNumber& number : type.numbers) {
      if (fresh(number.name)) keys.push_back(schedule_number_key(number.name));
    }
    for (const ScheduleWord& word : type.words) {
      if (fresh(word.name)) keys.push_back(schedule_word_key(word.name));
    }
  }
}

}  // namespace ds
