// DeepSpeed's legacy curriculum by length: sequences are cut to a length that grows with the step.
// The formulas are those of its CurriculumScheduler (deepspeed.md 4.15), whose step counts from 1
// in the first optimizer step.
#include "core/config/curriculum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/round.h"
#include "core/config/config.h"
#include "core/config/schema.h"
#include "core/config/values.h"

namespace ds {
namespace {

const std::string kSection = "curriculum_learning.";
constexpr Limits kCount{.low = 1, .high = 2147483647};

// A key that applies where the curriculum is on and its schedule is one of `schedules` (none: any).
template <typename Field>
Key curriculum_key(const std::string& name, std::vector<std::string> schedules, Field field,
                   Limits limits = {}) {
  const std::string path = kSection + name;
  auto applies = [schedules = std::move(schedules)](const CurriculumConfig& c) {
    bool any = schedules.empty() ||
               std::find(schedules.begin(), schedules.end(), c.schedule) != schedules.end();
    return c.enabled && any;
  };
  auto set = [=](Config& config, const Json& given) {
    if (config.curriculum.enabled && !applies(config.curriculum)) {
      raise(DS_ERROR_CONFIG, "{}: no parameter of curriculum_learning.schedule_type \"{}\"",
            KeyName(path), config.curriculum.schedule);
    }
    read_value(path, given, limits, field(config.curriculum));
  };
  auto get = [=](const Config& config) {
    return applies(config.curriculum) ? write_value(field(config.curriculum)) : Json();
  };
  return {path, "", set, get};
}

// A key that is one of a few names.
template <typename Field>
Key name_key(const std::string& name, std::vector<std::string> names, Field field) {
  Key out = curriculum_key(name, {}, field);
  out.set = [path = out.path, set = out.set, names = std::move(names), field](Config& c,
                                                                              const Json& given) {
    set(c, given);
    const std::string& chosen = field(c.curriculum);
    if (std::find(names.begin(), names.end(), chosen) != names.end()) return;
    raise(DS_ERROR_CONFIG, "{}: \"{}\" is unsupported by this version; supported: {}",
          KeyName(path), chosen, fmt::format("{}", fmt::join(names, ", ")));
  };
  return out;
}

// A list of numbers.
template <typename Field>
Key numbers_key(const std::string& name, Field field, Limits limits) {
  const std::string path = kSection + name;
  auto set = [=](Config& config, const Json& given) {
    if (!given.is_array()) {
      raise(DS_ERROR_CONFIG, "{}: expected a list of integers, got {}", KeyName(path),
            given.dump());
    }
    std::vector<int64_t>& out = field(config.curriculum);
    out.clear();
    for (const Json& one : given.array()) read_value(path, one, limits, out.emplace_back());
  };
  auto get = [=](const Config& config) {
    const CurriculumConfig& c = config.curriculum;
    if (!c.enabled || c.schedule != "fixed_discrete") return Json();
    return Json(Json::Array(field(c).begin(), field(c).end()));
  };
  return {path, "", set, get};
}

void require_given(const Config& c, const std::string& name) {
  if (c.origins.contains(kSection + name)) return;
  raise(DS_ERROR_CONFIG, "{}: missing; curriculum_learning needs it", KeyName(kSection + name));
}

void check_discrete(const CurriculumConfig& c) {
  if (c.difficulty.empty() || c.max_step.size() + 1 != c.difficulty.size()) {
    raise(DS_ERROR_CONFIG, "{}: must have one number more than max_step, got {} and {}",
          KeyName(kSection + "schedule_config.difficulty"), c.difficulty.size(), c.max_step.size());
  }
  if (!std::is_sorted(c.max_step.begin(), c.max_step.end())) {
    raise(DS_ERROR_CONFIG, "{}: steps must rise", KeyName(kSection + "schedule_config.max_step"));
  }
  for (int64_t length : c.difficulty) {
    if (length <= c.max_difficulty) continue;
    raise(DS_ERROR_CONFIG, "{}: {} is above max_difficulty {}",
          KeyName(kSection + "schedule_config.difficulty"), length, c.max_difficulty);
  }
}

}  // namespace

void curriculum_keys(std::vector<Key>& keys) {
  const std::vector<std::string> smooth{"fixed_linear", "fixed_root"};
  keys.push_back(curriculum_key("enabled", {}, [](auto& c) -> auto& { return c.enabled; }));
  keys.push_back(name_key("curriculum_type", {"seqlen"}, [](auto& c) -> auto& { return c.type; }));
  keys.push_back(name_key("schedule_type", {"fixed_linear", "fixed_root", "fixed_discrete"},
                          [](auto& c) -> auto& { return c.schedule; }));
  keys.push_back(curriculum_key(
      "min_difficulty", {}, [](auto& c) -> auto& { return c.min_difficulty; }, kCount));
  keys.push_back(curriculum_key(
      "max_difficulty", {}, [](auto& c) -> auto& { return c.max_difficulty; }, kCount));
  keys.push_back(curriculum_key(
      "schedule_config.total_curriculum_step", smooth,
      [](auto& c) -> auto& { return c.total_step; }, kCount));
  keys.push_back(curriculum_key(
      "schedule_config.difficulty_step", smooth, [](auto& c) -> auto& { return c.difficulty_step; },
      kCount));
  keys.push_back(curriculum_key(
      "schedule_config.root_degree", {"fixed_root"}, [](auto& c) -> auto& { return c.root_degree; },
      kCount));
  keys.push_back(numbers_key(
      "schedule_config.difficulty", [](auto& c) -> auto& { return c.difficulty; }, kCount));
  keys.push_back(numbers_key(
      "schedule_config.max_step", [](auto& c) -> auto& { return c.max_step; }, kCount));
}

void check_curriculum(const Config& config) {
  const CurriculumConfig& c = config.curriculum;
  if (!c.enabled) return;
  for (const char* name : {"min_difficulty", "max_difficulty", "schedule_type"})
    require_given(config, name);
  if (c.min_difficulty > c.max_difficulty) {
    raise(DS_ERROR_CONFIG, "{}: {} is above curriculum_learning.max_difficulty {}",
          KeyName(kSection + "min_difficulty"), c.min_difficulty, c.max_difficulty);
  }
  if (c.max_difficulty > config.sequence) {
    raise(DS_ERROR_CONFIG, "{}: {} is above run.sequence {}", KeyName(kSection + "max_difficulty"),
          c.max_difficulty, config.sequence);
  }
  if (c.schedule == "fixed_discrete") return check_discrete(c);
  require_given(config, "schedule_config.total_curriculum_step");
  require_given(config, "schedule_config.difficulty_step");
  if (c.schedule == "fixed_root") require_given(config, "schedule_config.root_degree");
}

int64_t curriculum_difficulty(const CurriculumConfig& c, int64_t step) {
  // DeepSpeed renews the length until it has been the largest in some step.
  if (c.min_difficulty == c.max_difficulty) return c.min_difficulty;
  const int64_t at = step + 1;
  if (c.schedule == "fixed_discrete") {
    size_t i = 0;
    for (int64_t before = 0; i < c.max_step.size() && at > c.max_step[i];
         before = c.max_step[i++]) {
      if (c.max_step[i] > before && c.difficulty[i] == c.max_difficulty) break;
    }
    return c.difficulty[i];
  }
  double share = static_cast<double>(at) / static_cast<double>(c.total_step);
  if (c.schedule == "fixed_root") share = std::pow(share, 1 / c.root_degree);
  double range = static_cast<double>(c.max_difficulty - c.min_difficulty);
  auto length =
      static_cast<int64_t>(std::floor(share * range + static_cast<double>(c.min_difficulty)));
  // The first multiple of difficulty_step that is no shorter than min_difficulty is the shortest.
  length =
      std::max(length - length % c.difficulty_step, round_up(c.min_difficulty, c.difficulty_step));
  return std::min(length, c.max_difficulty);
}

}  // namespace ds
