// The keys of scheduler.
//
// A parameter is one key even if several types have it: its limits and words are the union over the
// types, and its setter checks that the configured type has the parameter. Therefore scheduler.type
// is set first. It sets the defaults of the type, which the parameters then replace.
#include "optim/schedule_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/refuse.h"
#include "optim/schedule.h"

namespace ds {
namespace {

// The documentation of a parameter: its name, its default in all types, and its description.
struct ScheduleDoc {
  const char *name, *shown, *doc;
};
constexpr ScheduleDoc kDocs[] = {
    {"warmup_num_steps", "1000; of the Trainer's types 0",
     "number of steps of warm-up. DeepSpeed's types warm up for at least 2 steps"},
    {"warmup_type", "\"log\"; WSD \"linear\"",
     "the form of the warm-up. WarmupLR, WarmupDecayLR, WarmupCosineLR: `log` or `linear`; WSD: "
     "`linear`, `cosine` or `1-sqrt`"},
    {"warmup_min_lr", "0", "WarmupLR, WarmupDecayLR: rate at the start"},
    {"warmup_max_lr", "the rate of each group; WarmupDecayLR 0.001",
     "WarmupLR, WarmupDecayLR: rate after warm-up"},
    {"total_num_steps", "required",
     "WarmupDecayLR, WarmupCosineLR, linear, cosine, WSD: length of the whole schedule"},
    {"warmup_min_ratio", "0", "WarmupCosineLR: share of the rate at the start"},
    {"cos_min_ratio", "1e-4", "WarmupCosineLR: share of the rate at the end"},
    {"cycle_min_lr", "required", "OneCycle: rate at both ends of the cycle"},
    {"cycle_max_lr", "required", "OneCycle: rate at the peak"},
    {"cycle_first_step_size", "2000", "OneCycle: number of steps up to the peak"},
    {"cycle_second_step_size", "as the first", "OneCycle: number of steps down from the peak"},
    {"cycle_first_stair_count", "0", "OneCycle: number of stairs on the way up; 0: a ramp"},
    {"cycle_second_stair_count", "as the first",
     "OneCycle: number of stairs on the way down; 0: a ramp"},
    {"decay_step_size", "0", "OneCycle: number of steps of one decay after the cycle; 0: no decay"},
    {"decay_lr_rate", "0",
     "OneCycle: k steps after the cycle, the rate is `cycle_min_lr` / (1 + `decay_lr_rate` k / "
     "`decay_step_size`)"},
    {"cycle_momentum", "true; Muon false",
     "OneCycle: the first beta moves opposite to the rate, and the second is 0.99. With Muon, "
     "momentum and betas do not change"},
    {"cycle_min_mom", "0.8",
     "OneCycle: the first beta at the peak of the rate, and in the first step"},
    {"cycle_max_mom", "0.9", "OneCycle: the first beta at both ends of the cycle"},
    {"decay_mom_rate", "0",
     "OneCycle: k steps after the cycle, the first beta is `cycle_max_mom` (1 + `decay_mom_rate` k "
     "/ `decay_step_size`)"},
    {"lr_range_test_min_lr", "0.001", "LRRangeTest: rate at the start"},
    {"lr_range_test_step_size", "2000", "LRRangeTest: number of steps of an interval"},
    {"lr_range_test_step_rate", "1",
     "LRRangeTest: growth in one interval, as a share of the first rate"},
    {"lr_range_test_staircase", "false",
     "LRRangeTest: the rate changes at the ends of intervals only"},
    {"min_lr_ratio", "0",
     "linear, cosine, WSD: share of the rate at the end; WSD's warm-up begins there, too"},
    {"num_cycles", "0.5",
     "cosine, WSD with decay_type `cosine`: number of waves of the cosine until the end"},
    {"decay_num_steps", "a tenth of the total",
     "WSD: number of steps of the decay, which ends with the schedule"},
    {"decay_type", "\"cosine\"", "WSD: the form of the decay: `cosine`, `linear` or `1-sqrt`"}};

const ScheduleDoc& doc_of(const std::string& name) {
  const auto found =
      std::ranges::find_if(kDocs, [&](const ScheduleDoc& one) { return one.name == name; });
  require(found != std::end(kDocs), "schedule parameter {} has no row in kDocs", name);
  return *found;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleType& type : schedule_types()) names.emplace_back(type.type);
  return names;
}

// Returns the key scheduler.type. Setting it sets all parameters of the type to their defaults.
Key scheduler_type_key() {
  auto set = [](Config& c, const Json& given) {
    c.scheduler = make_schedule(choose("scheduler.type", given, schedule_names(), {}));
  };
  auto get = [](const Config& c) {
    return c.scheduler.type.empty() ? Json() : Json(c.scheduler.type);
  };
  return {
      "scheduler.type",
      set,
      get,
      KeyKind::text,
      "DeepSpeed's `WarmupLR`, `WarmupDecayLR`, `WarmupCosineLR`, `OneCycle`, `LRRangeTest`; the "
      "Trainer's `constant`, `linear`, `cosine`, `WSD`; any case. Without a type, each group keeps "
      "its rate. For a schedule of your own, call `ds_engine_set(engine, \"lr\", x)` between steps "
      "or, in whole runs, set `next_lr` in the progress callback, which sets the rate of all ranks",
      {},
      schedule_names()};
}

// Returns the parameter `name` among the numbers or the words of the configured schedule, or null.
template <typename Parameter>
const Parameter* parameter(const Config& c, std::span<const Parameter> ScheduleType::*of_kind,
                           const std::string& name) {
  const ScheduleType* type = find_schedule(c.scheduler.type);
  if (!type) return nullptr;
  const std::span<const Parameter> all = type->*of_kind;
  auto found = std::ranges::find_if(all, [&](const Parameter& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

[[noreturn]] void no_parameter_of(const std::string& path, const Config& c) {
  refuse(path, "not a parameter of scheduler.type \"{}\"", c.scheduler.type);
}

double read_schedule_number(const std::string& path, const Json& given,
                            const ScheduleNumber& number) {
  if (number.kind == ScheduleNumber::Kind::flag) return read_value<bool>(path, given) ? 1 : 0;
  if (number.kind == ScheduleNumber::Kind::steps)
    return static_cast<double>(read_value<int64_t>(path, given, number.limits));
  return read_value<double>(path, given, number.limits);
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

// Returns the key of a number. As in DeepSpeed a list has a value for each group of parameters, or
// one value if the number applies to all groups.
Key schedule_number_key(const ScheduleNumber& row) {
  const std::string name = row.name, path = "scheduler.params." + name;
  auto set = [path, name](Config& c, const Json& given) {
    const ScheduleNumber* number = parameter(c, &ScheduleType::numbers, name);
    if (!number) no_parameter_of(path, c);
    std::vector<double>& values = c.scheduler.numbers[name];
    values.clear();
    const bool list = given.is_array();
    const size_t count = list ? given.array().size() : 1, groups = 1 + c.optimizer.groups.size();
    if (list && count != (number->of_groups ? groups : 1)) {
      refuse(path, "expected a number{}, got {} values",
             number->of_groups ? fmt::format(" or {} of them, one for each group", groups) : "",
             count);
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string at = list ? fmt::format("{}[{}]", path, i) : path;
      values.push_back(read_schedule_number(at, list ? given.array()[i] : given, *number));
    }
  };
  auto get = [name](const Config& c) {
    const ScheduleNumber* number = parameter(c, &ScheduleType::numbers, name);
    if (!number) return Json();
    const std::vector<double>& values = c.scheduler.numbers.at(name);
    if (values.size() == 1) return write_schedule_number(values[0], *number);
    Json::Array list;
    for (double value : values) list.push_back(write_schedule_number(value, *number));
    return Json(list);
  };
  using enum ScheduleNumber::Kind;
  const KeyKind kind = row.of_groups      ? KeyKind::numbers
                       : row.kind == real ? KeyKind::number
                       : row.kind == flag ? KeyKind::boolean
                                          : KeyKind::integer;
  return {path, set, get, kind, doc_of(name).doc, row.limits};
}

Key schedule_word_key(const ScheduleWord& row) {
  const std::string name = row.name, path = "scheduler.params." + name;
  auto set = [path, name](Config& c, const Json& given) {
    const ScheduleWord* word = parameter(c, &ScheduleType::words, name);
    if (!word) no_parameter_of(path, c);
    c.scheduler.words[name] = choose(path, given, {word->values.begin(), word->values.end()}, {});
  };
  auto get = [name](const Config& c) {
    auto found = c.scheduler.words.find(name);
    return found == c.scheduler.words.end() ? Json() : Json(found->second);
  };
  return {
      path, set, get, KeyKind::text, doc_of(name).doc, {}, {row.values.begin(), row.values.end()}};
}

}  // namespace

void scheduler_keys(KeyList& keys) {
  add_key(keys, scheduler_type_key());
  // Appends a key or, if another type has the parameter, widens its limits and words.
  auto add = [&](Key key, const char* name) {
    const auto made =
        std::ranges::find_if(keys, [&](const Key& one) { return one.path == key.path; });
    if (made == keys.end()) {
      add_key(keys, std::move(key)).shown(doc_of(name).shown);
      return;
    }
    made->limits.low = std::min(made->limits.low, key.limits.low);
    for (std::string& word : key.words) {
      if (!contains(made->words, word)) made->words.push_back(std::move(word));
    }
  };
  for (const ScheduleType& type : schedule_types()) {
    for (const ScheduleNumber& number : type.numbers) add(schedule_number_key(number), number.name);
    for (const ScheduleWord& word : type.words) add(schedule_word_key(word), word.name);
  }
}

// The values are those of Hugging Face's integration: the schedule warms up within one step to the
// rate of the optimizer, or to 5e-5 if it is not given, and ends with the run. Keys of sizes that
// depend on the model's width are added to config.waiting until the width is known.
void complete_auto(Config& c, const ConfigDocument& reader, int64_t steps) {
  auto fill = [&](const std::string& name, double value) {
    const std::string path = "scheduler.params." + name;
    if (!reader.waits(path)) return;
    auto number = c.scheduler.numbers.find(name);
    if (number == c.scheduler.numbers.end()) no_parameter_of(path, c);
    number->second = {value};
    c.origins[path] = "auto";
  };
  const bool given = c.origins.contains("optimizer.params.lr");
  fill("warmup_max_lr", given ? c.optimizer.lr : 5e-5);
  fill("warmup_num_steps", 1);
  fill("total_num_steps", static_cast<double>(steps));
  for (const char* name : {"reduce_bucket_size", "stage3_prefetch_bucket_size",
                           "stage3_param_persistence_threshold"}) {
    const std::string path = std::string("zero_optimization.") + name;
    if (reader.waits(path)) c.waiting.push_back(path);
  }
}

}  // namespace ds
