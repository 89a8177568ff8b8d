#include "support/expected_groups.h"

#include <algorithm>

#include "optim/optimizer_types.h"

namespace ds::test {

std::pair<std::string, double> random_number(const OptimizerConfig& optimizer, Dice& dice) {
  std::vector<std::pair<std::string, double>> all{{"lr", dice.pick({0x1p-7, 0x1p-6, 0.003})},
                                                  {"weight_decay", dice.pick({0.0, 0.1, 0.3})}};
  if (has_param(optimizer, "betas")) {
    all.emplace_back("beta1", dice.pick({0.5, 0.8}));
    all.emplace_back("beta2", dice.pick({0.9, 0.99}));
  }
  if (has_param(optimizer, "eps")) all.emplace_back("eps", dice.pick({1e-7, 1e-5}));
  if (has_param(optimizer, "momentum")) all.emplace_back("momentum", dice.pick({0.25, 0.75}));
  return all[static_cast<size_t>(dice.below(static_cast<int64_t>(all.size())))];
}

ExpectedGroups::ExpectedGroups(const OptimizerConfig& optimizer,
                               const std::vector<std::string>& names)
    : optimizer_(optimizer), group_(names.size(), 0), own_(1), set_(1) {
  for (const ParamGroup& group : optimizer.groups) {
    for (size_t p = 0; p < names.size(); ++p) {
      if (std::count(group.params.begin(), group.params.end(), names[p]) != 0)
        group_[p] = own_.size();
    }
    own_.push_back(group.values);
    set_.emplace_back();
  }
}

GroupScalars ExpectedGroups::of(size_t param) const {
  const OptimizerConfig& o = optimizer_;
  GroupScalars out{o.lr, o.weight_decay, o.beta1, o.beta2, o.eps, o.momentum};
  for (const Numbers& numbers : {own_[group_[param]], set_[group_[param]]}) {
    for (const auto& [name, value] : numbers) {
      (name == "lr"             ? out.lr
       : name == "weight_decay" ? out.weight_decay
       : name == "beta1"        ? out.beta1
       : name == "beta2"        ? out.beta2
       : name == "eps"          ? out.eps
                                : out.momentum) = value;
    }
  }
  return out;
}

void ExpectedGroups::add(const std::vector<int32_t>& params, const Numbers& values) {
  for (int32_t p : params) group_[static_cast<size_t>(p)] = own_.size();
  own_.push_back(values);
  set_.emplace_back();
}

void ExpectedGroups::set(std::optional<size_t> group, const std::string& number,
                         std::optional<double> value) {
  for (size_t g = 0; g < set_.size(); ++g) {
    if (group && *group != g) continue;
    set_[g].erase(number);
    if (value) set_[g][number] = *value;
  }
}

void ExpectedGroups::load(const std::vector<Numbers>& numbers) {
  for (size_t g = 0; g < set_.size(); ++g) set_[g] = g < numbers.size() ? numbers[g] : Numbers();
}

}  // namespace ds::test
