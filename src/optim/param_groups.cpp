// Groups of parameters with values of their own.
//
// A number of a group has two names: `param`, the member of the group that sets it ("betas" sets
// two numbers), and `name`, its key in ParamGroup::values. Muon has two rates, and "lr" is a
// shorthand for both: group_scalars() applies it first, so that a rate given by its own name
// replaces it.
#include "optim/param_groups.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/contains.h"
#include "core/base/suggest.h"
#include "core/config/refuse.h"
#include "optim/optimizer_types.h"

namespace ds {
namespace {

constexpr GroupNumber kNumbers[] = {
    {"lr", &GroupScalars::lr, not_negative, "lr"},
    {"muon_lr", &GroupScalars::lr, not_negative, "muon_lr"},
    {"adam_lr", &GroupScalars::adam_lr, not_negative, "adam_lr"},
    {"weight_decay", &GroupScalars::weight_decay, not_negative, "weight_decay"},
    {"beta1", &GroupScalars::beta1, decay, "betas"},
    {"beta2", &GroupScalars::beta2, decay, "betas"},
    {"eps", &GroupScalars::eps, not_negative, "eps"},
    {"momentum", &GroupScalars::momentum, not_negative, "momentum"},
};

// Returns the members that a group of this optimizer may have. As in PyTorch, both betas are one
// member; the loop relies on their rows being neighbours in kNumbers.
std::vector<std::string> members_of(const OptimizerConfig& optimizer, bool patterns) {
  std::vector<std::string> members;
  if (patterns) members.emplace_back("params");
  for (const GroupNumber& number : group_numbers(optimizer)) {
    if (members.empty() || members.back() != number.param) members.emplace_back(number.param);
  }
  return members;
}

[[noreturn]] void refuse_member(const std::string& path, const std::string& name,
                                const OptimizerConfig& optimizer,
                                const std::vector<std::string>& members) {
  for (const char* other : {"betas", "eps", "momentum", "muon_lr", "adam_lr"}) {
    if (name == other)
      refuse(path + "." + name, "not a parameter of optimizer.type \"{}\"", optimizer.type);
  }
  refuse(path + "." + name, "a group has {}{}", fmt::join(members, ", "),
         did_you_mean(name, members));
}

}  // namespace

std::vector<GroupNumber> group_numbers(const OptimizerConfig& optimizer) {
  std::vector<GroupNumber> numbers;
  for (const GroupNumber& number : kNumbers) {
    if (has_param(optimizer, number.param)) numbers.push_back(number);
  }
  return numbers;
}

const GroupNumber* find_group_number(const std::vector<GroupNumber>& numbers,
                                     std::string_view name) {
  auto found = std::ranges::find_if(numbers, [&](const GroupNumber& n) { return n.name == name; });
  return found == numbers.end() ? nullptr : &*found;
}

std::vector<GroupNumber> numbers_meant(const OptimizerConfig& optimizer, std::string_view name) {
  const std::vector<GroupNumber> all = group_numbers(optimizer);
  const GroupNumber* named = find_group_number(all, name);
  if (!named) return {};
  if (name != "lr" || !find_group_number(all, "muon_lr")) return {*named};
  return {*find_group_number(all, "muon_lr"), *find_group_number(all, "adam_lr")};
}

std::string refusal_of(const OptimizerConfig& optimizer, std::string_view number, double value) {
  if (number != "momentum") return "";
  if (optimizer.nesterov && value == 0) return "must be above 0 with nesterov, got 0";
  if (optimizer.type == "Muon" && value >= 1)
    return fmt::format("must be below 1 with Muon, which averages, got {}", value);
  return "";
}

GroupScalars group_scalars(const OptimizerConfig& o) {
  return {.lr = o.muon_lr.value_or(o.lr),
          .weight_decay = o.weight_decay,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .momentum = o.momentum,
          .adam_lr = o.adam_lr.value_or(o.lr)};
}

GroupScalars group_scalars(const OptimizerConfig& optimizer, const ParamGroup& group) {
  GroupScalars scalars = group_scalars(optimizer);
  const auto take = [&](const std::string& name, double value) {
    for (const GroupNumber& number : numbers_meant(optimizer, name)) scalars.*number.value = value;
  };
  // A rate given by its own name replaces the rate that "lr" sets.
  if (auto rate = group.values.find("lr"); rate != group.values.end())
    take(rate->first, rate->second);
  for (const auto& [name, value] : group.values) {
    if (name != "lr") take(name, value);
  }
  return scalars;
}

void read_betas(const std::string& path, const Json& given, double& beta1, double& beta2) {
  if (!given.is_array() || given.array().size() != 2)
    refuse(path, "expected two numbers, got {}", given.dump());
  beta1 = read_value<double>(path + "[0]", given.array()[0], decay);
  beta2 = read_value<double>(path + "[1]", given.array()[1], decay);
}

ParamGroup read_param_group(const std::string& path, const Json& given,
                            const OptimizerConfig& optimizer, bool patterns) {
  if (!given.is_object()) refuse(path, "expected an object, got {}", given.dump());
  ParamGroup group;
  const std::vector<GroupNumber> numbers = group_numbers(optimizer);
  const std::vector<std::string> members = members_of(optimizer, patterns);
  for (const auto& [name, value] : given.object()) {
    if (!contains(members, name)) refuse_member(path, name, optimizer, members);
    const std::string at = path + "." + name;
    if (name == "params") {
      group.params = read_value<std::vector<std::string>>(at, value);
    } else if (name == "betas") {
      read_betas(at, value, group.values["beta1"], group.values["beta2"]);
    } else {
      group.values[name] = read_value<double>(at, value, find_group_number(numbers, name)->limits);
    }
  }
  if (patterns && group.params.empty())
    refuse(path + ".params", "missing; a group needs a pattern of names at least");
  return group;
}

Json param_group_json(const OptimizerConfig& optimizer, const ParamGroup& group) {
  const GroupScalars scalars = group_scalars(optimizer, group);
  Json out = Json::Object();
  if (!group.params.empty()) out.set("params", write_value(group.params));
  for (const auto& [name, value] : group.values) {
    if (name.starts_with("beta")) {
      out.set("betas", Json(Json::Array{scalars.beta1, scalars.beta2}));
    } else {
      out.set(name, value);
    }
  }
  return out;
}

}  // namespace ds
