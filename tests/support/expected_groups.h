// The parameter groups of a host, and the optimizer values that each parameter's updates must use.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/device/scalars.h"
#include "support/dice.h"

namespace ds::test {

// Draws one of the optimizer's numeric settings and returns its name with a value that the
// configuration accepts.
std::pair<std::string, double> random_number(const OptimizerConfig& optimizer, Dice& dice);

// A model of the parameter groups that uses no code of src.
class ExpectedGroups {
 public:
  using Numbers = std::map<std::string, double>;
  // names: the name of each parameter. The groups of the configuration list full names, not
  // patterns.
  ExpectedGroups(const OptimizerConfig& optimizer, const std::vector<std::string>& names);

  GroupScalars of(size_t param) const;
  size_t size() const { return own_.size(); }
  void add(const std::vector<int32_t>& params, const Numbers& values);
  // Sets a value in one group, or in all groups if `group` is not given. Without a value, returns
  // the setting to its configured value.
  void set(std::optional<size_t> group, const std::string& number, std::optional<double> value);
  // Returns, by group, the values that were set by calls. Checkpoints save only these.
  const std::vector<Numbers>& numbers() const { return set_; }
  void load(const std::vector<Numbers>& numbers);

 private:
  OptimizerConfig optimizer_;
  // The group of each parameter.
  std::vector<size_t> group_;
  std::vector<Numbers> own_, set_;
};

}  // namespace ds::test
