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
  // The member of a group, and of optimizer.params, that sets the number. A group has the number if
  // its optimizer has this parameter (has_param()).
  const char* param;
};

// The fields of GroupScalars that are rates.
constexpr double GroupScalars::*kRates[] = {&GroupScalars::lr, &GroupScalars::adam_lr};

// Returns the numbers of this optimizer's groups. If the optimizer has two rates, "lr" reads the
// first rate, and setting "lr" sets both (numbers_meant()).
std::vector<GroupNumber> group_numbers(const OptimizerConfig& optimizer);
// Returns the numbers that a value of this name sets: every rate for "lr", otherwise the number of
// that name. Returns an empty list if the optimizer does not have the number.
std::vector<GroupNumber> numbers_meant(const OptimizerConfig& optimizer, std::string_view name);
// Returns the number of that name among `numbers`, or null.
const GroupNumber* find_group_number(const std::vector<GroupNumber>& numbers,
                                     std::string_view name);

// Returns the reason for which a number of a group is refused although it is within its limits, for
// example "must be below 1 ..., got 1", or "" if the number is accepted.
std::string refusal_of(const OptimizerConfig& optimizer, std::string_view number, double value);

// Returns the scalars of group 0 before any schedule. Group 0 has the parameters that are in no
// other group.
GroupScalars group_scalars(const OptimizerConfig& optimizer);
// Returns the scalars of `group`, which is not group 0, before any schedule.
GroupScalars group_scalars(const OptimizerConfig& optimizer, const ParamGroup& group);

// Reads both betas, which are one value as in PyTorch. Throws DS_ERROR_CONFIG naming the path.
void read_betas(const std::string& path, const Json& given, double& beta1, double& beta2);

// Reads a group, for example {"params": ["*.bias"], "weight_decay": 0}. With `patterns` the member
// `params` is required, without it refused. Throws DS_ERROR_CONFIG naming path and member.
ParamGroup read_param_group(const std::string& path, const Json& given,
                            const OptimizerConfig& optimizer, bool patterns);
// Returns a group in the form that read_param_group() reads.
Json param_group_json(const OptimizerConfig& optimizer, const ParamGroup& group);

}  // namespace ds
