#include "core/config/rate_rules.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/config/optimizer_types.h"
#include "core/config/schedule.h"
#include "core/config/values.h"

namespace ds {
namespace {

// The name of the parameter by which a schedule sets a rate that is for every group, whatever the
// groups say; "": it begins from their own rates.
std::string rate_of_all(const Config& c) {
  for (const char* name : {"warmup_max_lr", "cycle_min_lr", "lr_range_test_min_lr"}) {
    const auto found = c.scheduler.numbers.find(name);
    if (found != c.scheduler.numbers.end() && !std::isnan(found->second[0])) return name;
  }
  return "";
}

// What a schedule does to Muon's two halves that nobody may expect; both as DeepSpeed does it.
void check_muon_schedule(Config& c) {
  if (c.optimizer.type != "Muon") return;
  // Its optimizer has no betas of its own, so that OneCycle leaves those of the halves alone.
  if (c.scheduler.type == "OneCycle" && c.scheduler.numbers.at("cycle_momentum")[0] != 0) {
    c.scheduler.numbers.at("cycle_momentum") = {0};
    c.origins["scheduler.params.cycle_momentum"] = "derived";
    c.warnings.emplace_back(
        "scheduler.params.cycle_momentum: Muon's momentum and betas stay as they are, as in "
        "DeepSpeed");
  }
  const std::string absolute = rate_of_all(c);
  if (absolute.empty() || *c.optimizer.muon_lr == *c.optimizer.adam_lr) return;
  c.warnings.push_back(
      fmt::format("scheduler.params.{}: it is the rate of matrices and of all other parameters; "
                  "optimizer.params.muon_lr {} and adam_lr {} have no effect beside it",
                  absolute, *c.optimizer.muon_lr, *c.optimizer.adam_lr));
}

}  // namespace

void complete_rates(Config& c) {
  OptimizerConfig& o = c.optimizer;
  if (o.type != "Muon") return;
  const bool given = c.origins.contains("optimizer.params.lr");
  auto complete = [&](const char* path, std::optional<double>& rate, double otherwise) {
    if (rate) return;
    rate = given ? o.lr : otherwise;
    c.origins[path] = "derived";
  };
  complete("optimizer.params.muon_lr", o.muon_lr, 0.02);
  complete("optimizer.params.adam_lr", o.adam_lr, 3e-4);
}

void complete_schedule(Config& c) {
  const ScheduleType* type = find_schedule(c.scheduler.type);
  if (!type) return;
  auto missing = [&](const char* name) { return std::isnan(c.scheduler.numbers.at(name)[0]); };
  auto derive = [&](const char* name, double value) {
    c.scheduler.numbers.at(name) = {value};
    c.origins[std::string("scheduler.params.") + name] = "derived";
  };
  for (const ScheduleNumber& number : type->numbers) {
    const std::string name = number.name;
    if (!missing(number.name)) continue;
    if (name == "warmup_max_lr") continue;  // each group's own rate
    if (name == "cycle_second_step_size") {
      derive(number.name, c.scheduler.numbers.at("cycle_first_step_size")[0]);
    } else if (name == "cycle_second_stair_count") {
      derive(number.name, c.scheduler.numbers.at("cycle_first_stair_count")[0]);
    } else if (name == "decay_num_steps") {
      derive(number.name, std::floor(c.scheduler.numbers.at("total_num_steps")[0] / 10));
    } else {
      raise(DS_ERROR_CONFIG, "{}: missing; {} needs it", KeyName("scheduler.params." + name),
            type->type);
    }
  }
  check_muon_schedule(c);
  if (c.scheduler.type == "OneCycle" && c.scheduler.numbers.at("cycle_momentum")[0] != 0 &&
      c.scheduler.numbers.at("decay_mom_rate")[0] > 0 && has_param(c.optimizer, "betas")) {
    c.warnings.emplace_back(
        "scheduler.params.decay_mom_rate: it lets the first beta grow beyond 1, where Adam's "
        "update has no "
        "meaning; end the run before");
  }
}

void check_group(const Config& c, const ParamGroup& group, const std::string& path) {
  const std::map<std::string, double>& values = group.values;
  for (const auto& [name, value] : values) {
    if (const std::string wrong = refusal_of(c.optimizer, name, value); !wrong.empty())
      raise(DS_ERROR_CONFIG, "{}: {}", KeyName(path + "." + name), wrong);
  }
  const std::string absolute = rate_of_all(c);
  for (const char* rate : {"lr", "muon_lr", "adam_lr"}) {
    if (absolute.empty() || !values.contains(rate)) continue;
    raise(DS_ERROR_CONFIG,
          "{}: {} has no effect beside scheduler.params.{} {}, which is for every group; {}",
          KeyName(path + "." + rate), values.at(rate), absolute,
          c.scheduler.numbers.at(absolute)[0],
          c.scheduler.type == "WarmupLR" ? "without that key each group warms up to its own lr"
                                         : "that key takes a list with a value for each group");
  }
}

void check_groups(const Config& c) {
  for (size_t i = 0; i < c.optimizer.groups.size(); ++i)
    check_group(c, c.optimizer.groups[i], fmt::format("optimizer.param_groups[{}]", i));
}

}  // namespace ds
