#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/base/group_scalars.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/values.h"

namespace ds {

// A number that each group of parameters has.
struct GroupNumber {
  const char* name;
  double GroupScalars::*value;
  Limits limits;
  const char* param;  // its name in optimizer.params, which says which optimizers have it
};

// The rates of a group.
constexpr double GroupScalars::*kRates[] = {&GroupScalars::lr, &GroupScalars::adam_lr};

// Those of this optimizer. Where it has two rates, "lr" reads the first one and stands for both
// (`numbers_meant`).
std::vector<GroupNumber> group_numbers(const OptimizerConfig& optimizer);
// The numbers that a value by this name is for: for "lr" every rate by its own name, otherwise the
// number of that name. Empty: the optimizer has none.
std::vector<GroupNumber> numbers_meant(const OptimizerConfig& optimizer, std::string_view name);
// The number of that name; null: the optimizer has none.
const GroupNumber* find_group_number(const std::vector<GroupNumber>& numbers,
                                     std::string_view name);

// What is wrong with this number of a group: "must be below 1 ..., got 1"; "" nothing, as far as
// its limits do not say it.
std::string refusal_of(const OptimizerConfig& optimizer, std::string_view number, double value);

// What parameters of no group are updated with, before any schedule.
GroupScalars group_scalars(const OptimizerConfig& optimizer);
// The same of a group.
GroupScalars group_scalars(const OptimizerConfig& optimizer, const ParamGroup& group);

// Reads {"params": ["*.bias"], "weight_decay": 0}; without `patterns` the member params is unknown.
// Throws DS_ERROR_CONFIG naming path and member.
ParamGroup read_param_group(const std::string& path, const Json& given,
                            const OptimizerConfig& optimizer, bool patterns);
// As read_param_group() reads it.
Json param_group_json(const OptimizerConfig& optimizer, const ParamGroup& group);

}  // namespace ds
