// DeepSpeed's legacy curriculum by length: sequences are cut to a length that grows with the step.
//
// With t = step / total_curriculum_step, where the first optimizer step has number 1, the length is
// min + (max - min) t^(1 / d), cut to a multiple of difficulty_step that is at least min, and at
// most max. fixed_linear has d = 1, fixed_root has d = root_degree. fixed_discrete has a list of
// lengths instead. The formulas are those of DeepSpeed's CurriculumScheduler. A length is a
// function of the step alone, so a resumed run needs no state for it.
#include "data/curriculum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/contains.h"
#include "core/base/round.h"
#include "core/config/config.h"
#include "core/config/key.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

const std::string kSection = "curriculum_learning.";
constexpr Limits kCount{.low = 1, .high = 2147483647};

// Restricts a key to `schedules`, where an empty list allows any: an enabled curriculum with
// another schedule refuses the key, and without a curriculum the key is not printed.
void only_for(Key& key, std::vector<std::string> schedules) {
  auto applies = [schedules = std::move(schedules)](const Config& config) {
    const CurriculumKeys& c = config.get<CurriculumKeys>();
    return c.enabled && (schedules.empty() || contains(schedules, c.schedule));
  };
  key.set = [applies, path = key.path, inner = key.set](Config& config, const Json& given) {
    if (config.get<CurriculumKeys>().enabled && !applies(config)) {
      refuse(path, "does not apply to curriculum_learning.schedule_type \"{}\"",
             config.get<CurriculumKeys>().schedule);
    }
    inner(config, given);
  };
  key.when(applies);
}

// Restricts the value of a key to a few names.
void named(Key& key, std::vector<std::string> names, std::string CurriculumKeys::*field) {
  key.words = std::move(names);
  key.then([path = key.path, names = key.words, field](Config& c) {
    const std::string& chosen = c.get<CurriculumKeys>().*field;
    if (contains(names, chosen)) return;
    refuse(path, "\"{}\" is unsupported by this version; supported: {}", chosen,
           fmt::join(names, ", "));
  });
  only_for(key, {});
}

// Returns a key that is a list of integers, each at least 1.
Key numbers_key(const std::string& name, std::vector<int64_t> CurriculumKeys::*field,
                const char* doc) {
  const std::string path = kSection + name;
  auto set = [=](Config& config, const Json& given) {
    if (!given.is_array()) refuse(path, "expected a list of integers, got {}", given.dump());
    std::vector<int64_t>& out = config.get<CurriculumKeys>().*field;
    out.clear();
    for (const Json& one : given.array()) {
      int64_t& number = out.emplace_back();
      number = read_value<int64_t>(path, one, kCount);
    }
  };
  auto get = [=](const Config& config) {
    const std::vector<int64_t>& numbers = config.get<CurriculumKeys>().*field;
    return Json(Json::Array(numbers.begin(), numbers.end()));
  };
  return {path, set, get, KeyKind::integers, doc, kCount};
}

void require_given(const Config& c, const std::string& name) {
  if (c.origins.contains(kSection + name)) return;
  refuse(kSection + name, "missing; curriculum_learning needs it");
}

void check_discrete(const CurriculumKeys& c) {
  if (c.difficulty.empty() || c.max_step.size() + 1 != c.difficulty.size()) {
    refuse(kSection + "schedule_config.difficulty",
           "must have one entry more than max_step, got {} and {}", c.difficulty.size(),
           c.max_step.size());
  }
  if (!std::ranges::is_sorted(c.max_step)) {
    refuse(kSection + "schedule_config.max_step", "steps must be in ascending order");
  }
  for (int64_t length : c.difficulty) {
    if (length <= c.max_difficulty) continue;
    refuse(kSection + "schedule_config.difficulty", "{} is above max_difficulty {}", length,
           c.max_difficulty);
  }
}

}  // namespace

void curriculum_keys(KeyList& keys) {
  using C = CurriculumKeys;
  KeyRows rows(keys, kSection, of_section<C>);
  const std::vector<std::string> smooth{"fixed_linear", "fixed_root"};
  only_for(
      rows.add("enabled", &C::enabled,
               "DeepSpeed's curriculum by length: only the first tokens of each sample count, and "
               "their number grows from step to step ([data.md](data.md#curriculum-by-length))"),
      {});
  named(rows.add("curriculum_type", &C::type,
                 "the measure of difficulty; only `seqlen`, the length, is supported"),
        {"seqlen"}, &C::type);
  named(rows.add("schedule_type", &C::schedule,
                 "how the number of tokens grows: `fixed_linear`, `fixed_root` or `fixed_discrete`")
            .shown("required"),
        {"fixed_linear", "fixed_root", "fixed_discrete"}, &C::schedule);
  auto number = [&](const char* name, auto field, std::vector<std::string> schedules,
                    const char* doc) {
    only_for(rows.add(name, field, doc, kCount).shown("required"), std::move(schedules));
  };
  number("min_difficulty", &C::min_difficulty, {},
         "the number of tokens that count at the beginning");
  number("max_difficulty", &C::max_difficulty, {},
         "the number of tokens that count at the end, at most `run.sequence`");
  number("schedule_config.total_curriculum_step", &C::total_step, smooth,
         "for fixed_linear and fixed_root: the number of steps until `max_difficulty` is reached");
  number("schedule_config.difficulty_step", &C::difficulty_step, smooth,
         "for fixed_linear and fixed_root: all lengths but the largest are multiples of it");
  number("schedule_config.root_degree", &C::root_degree, {"fixed_root"},
         "for fixed_root: the degree of the root; the number of tokens grows with this root of the "
         "share of steps that have passed");
  rows.only([](const C& c) { return c.enabled && c.schedule == "fixed_discrete"; });
  rows.put(numbers_key("schedule_config.difficulty", &C::difficulty,
                       "for fixed_discrete: the lengths, one more than `max_step` has steps"))
      .shown("required");
  rows
      .put(numbers_key(
          "schedule_config.max_step", &C::max_step,
          "for fixed_discrete: the last step of each length but the last one; steps count from 1"))
      .shown("required");
}

void check_curriculum(const Config& config) {
  const CurriculumKeys& c = config.get<CurriculumKeys>();
  if (!c.enabled) return;
  for (const char* name : {"min_difficulty", "max_difficulty", "schedule_type"})
    require_given(config, name);
  if (c.min_difficulty > c.max_difficulty) {
    refuse(kSection + "min_difficulty", "{} is above curriculum_learning.max_difficulty {}",
           c.min_difficulty, c.max_difficulty);
  }
  if (c.max_difficulty > config.sequence) {
    refuse(kSection + "max_difficulty", "{} is above run.sequence {}", c.max_difficulty,
           config.sequence);
  }
  if (c.schedule == "fixed_discrete") return check_discrete(c);
  require_given(config, "schedule_config.total_curriculum_step");
  require_given(config, "schedule_config.difficulty_step");
  if (c.schedule == "fixed_root") require_given(config, "schedule_config.root_degree");
}

int64_t curriculum_difficulty(const CurriculumKeys& c, int64_t step) {
  // DeepSpeed computes a new length only while the present one is below the largest. So a
  // curriculum that begins at the largest length stays there, and the loop of fixed_discrete ends
  // at the first entry with the largest length that lasts for at least one step.
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
  // The cut to a multiple must not go below min_difficulty, so the shortest length is the first
  // multiple that is not below it.
  length =
      std::max(length - length % c.difficulty_step, round_up(c.min_difficulty, c.difficulty_step));
  return std::min(length, c.max_difficulty);
}

}  // namespace ds
