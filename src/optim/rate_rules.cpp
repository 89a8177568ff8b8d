#include "optim/rate_rules.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config/refuse.h"
#include "core/config/values.h"
#include "optim/optimizer_types.h"
#include "optim/schedule.h"

namespace ds {
namespace {

// Returns the parameter with which a schedule sets one absolute rate for every group and overrides
// the rates of the groups, or "" if the schedule scales the rates of the groups.
std::string rate_of_all(const SchedulerConfig& s) {
  for (const char* name : {"warmup_max_lr", "cycle_min_lr", "lr_range_test_min_lr"}) {
    if (s.numbers.contains(name) && !std::isnan(s.numbers.at(name)[0])) return name;
  }
  return "";
}

// Returns whether the schedule also changes the momentum.
bool cycles_momentum(const SchedulerConfig& s) {
  return s.type == "OneCycle" && s.numbers.at("cycle_momentum")[0] != 0;
}

// Turns off OneCycle's momentum for Muon, and warns if a schedule overrides two different rates.
// Both effects are as in DeepSpeed.
void check_muon_schedule(Config& c) {
  if (c.optimizer.type != "Muon") return;
  // DeepSpeed's OneCycle looks for betas in the optimizer itself. Muon's betas are in the two
  // optimizers that it contains, so OneCycle does not change them.
  if (cycles_momentum(c.scheduler)) {
    c.scheduler.numbers.at("cycle_momentum") = {0};
    c.origins["scheduler.params.cycle_momentum"] = "derived";
    c.warnings.emplace_back(
        "scheduler.params.cycle_momentum: Muon's momentum and betas stay as they are, as in "
        "DeepSpeed");
  }
  const std::string absolute = rate_of_all(c.scheduler);
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

// A number without a default that the document leaves out is NaN. The function derives it from
// another number or refuses the configuration; only warmup_max_lr stays NaN.
void complete_schedule(Config& c) {
  const ScheduleType* type = find_schedule(c.scheduler.type);
  if (!type) return;
  std::map<std::string, std::vector<double>>& numbers = c.scheduler.numbers;
  auto derive = [&](const std::string& name, double value) {
    numbers.at(name) = {value};
    c.origins["scheduler.params." + name] = "derived";
  };
  for (const ScheduleNumber& number : type->numbers) {
    const std::string name = number.name;
    if (!std::isnan(numbers.at(name)[0])) continue;
    // Without a value, each group warms up to its own rate (optim/schedule.cpp).
    if (name == "warmup_max_lr") continue;
    if (name == "cycle_second_step_size") {
      derive(name, numbers.at("cycle_first_step_size")[0]);
    } else if (name == "cycle_second_stair_count") {
      derive(name, numbers.at("cycle_first_stair_count")[0]);
    } else if (name == "decay_num_steps") {
      derive(name, std::floor(numbers.at("total_num_steps")[0] / 10));
    } else {
      refuse("scheduler.params." + name, "missing; {} needs it", type->type);
    }
  }
  check_muon_schedule(c);
  if (cycles_momentum(c.scheduler) && numbers.at("decay_mom_rate")[0] > 0 &&
      has_param(c.optimizer, "betas")) {
    c.warnings.emplace_back(
        "scheduler.params.decay_mom_rate: it lets the first beta grow beyond 1, where Adam's "
        "update has no meaning; end the run before");
  }
}

void check_group(const Config& c, const ParamGroup& group, const std::string& path) {
  const std::map<std::string, double>& values = group.values;
  for (const auto& [name, value] : values) {
    if (const std::string wrong = refusal_of(c.optimizer, name, value); !wrong.empty())
      refuse(path + "." + name, "{}", wrong);
  }
  // A rate of the group would have no effect beside an absolute rate of the schedule.
  const std::string absolute = rate_of_all(c.scheduler);
  for (const char* rate : {"lr", "muon_lr", "adam_lr"}) {
    if (absolute.empty() || !values.contains(rate)) continue;
    refuse(path + "." + rate,
           "{} has no effect beside scheduler.params.{} {}, which is for every group; {}",
           values.at(rate), absolute, c.scheduler.numbers.at(absolute)[0],
           c.scheduler.type == "WarmupLR" ? "without that key each group warms up to its own lr"
                                          : "that key takes a list with a value for each group");
  }
}

void check_groups(const Config& c) {
  for (size_t i = 0; i < c.optimizer.groups.size(); ++i)
    check_group(c, c.optimizer.groups[i], fmt::format("optimizer.param_groups[{}]", i));
}

}  // namespace ds
