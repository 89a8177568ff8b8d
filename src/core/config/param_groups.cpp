#include "core/config/param_groups.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/config/optimizer_types.h"

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

// Members that a group of this optimizer may have; as in PyTorch, both betas are one of them.
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
      raise(DS_ERROR_CONFIG, "{}: no parameter of optimizer.type \"{}\"",
            KeyName(path + "." + name), optimizer.type);
  }
  raise(DS_ERROR_CONFIG, "{}: a group has {}{}", KeyName(path + "." + name),
        fmt::join(members, ", "), did_you_mean(name, members));
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
  auto found = std::find_if(numbers.begin(), numbers.end(),
                            [&](const GroupNumber& n) { return n.name == name; });
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
  // A rate by its own name goes before that of all.
  if (auto rate = group.values.find("lr"); rate != group.values.end())
    take(rate->first, rate->second);
  for (const auto& [name, value] : group.values) {
    if (name != "lr") take(name, value);
  }
  return scalars;
}

ParamGroup read_param_group(const std::string& path, const Json& given,
                            const OptimizerConfig& optimizer, bool patterns) {
  if (!given.is_object())
    raise(DS_ERROR_CONFIG, "{}: expected an object, got {}", KeyName(path), given.dump());
  ParamGroup group;
  const std::vector<GroupNumber> numbers = group_numbers(optimizer);
  const std::vector<std::string> members = members_of(optimizer, patterns);
  for (const auto& [name, value] : given.object()) {
    if (std::find(members.begin(), members.end(), name) == members.end())
      refuse_member(path, name, optimizer, members);
    const std::string at = path + "." + name;
    if (name == "params") {
      read_value(at, value, {}, group.params);
    } else if (name == "betas") {
      if (!value.is_array() || value.array().size() != 2)
        raise(DS_ERROR_CONFIG, "{}: expected two numbers, got {}", KeyName(at), value.dump());
      read_value(at + "[0]", value.array()[0], decay, group.values["beta1"]);
      read_value(at + "[1]", value.array()[1], decay, group.values["beta2"]);
    } else {
      read_value(at, value, find_group_number(numbers, name)->limits, group.values[name]);
    }
  }
  if (patterns && group.params.empty())
    raise(DS_ERROR_CONFIG, "{}: missing; a group needs a pattern of names at least",
          KeyName(path + ".params"));
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
