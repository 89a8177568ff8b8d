// Groups of parameters as a host knows them: what each parameter's updates must read.
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

// A value that the optimizer's configuration would accept for one of its numbers, and its name.
std::pair<std::string, double> random_number(const OptimizerConfig& optimizer, Dice& dice);

// Kept without code of src.
class ExpectedGroups {
 public:
  using Numbers = std::map<std::string, double>;
  // names: of the parameters; the configuration's groups name them whole.
  ExpectedGroups(const OptimizerConfig& optimizer, const std::vector<std::string>& names);

  GroupScalars of(size_t param) const;
  size_t size() const { return own_.size(); }
  void add(const std::vector<int32_t>& params, const Numbers& values);
  // group: none means all; value: none gives the number back to the configuration.
  void set(std::optional<size_t> group, const std::string& number, std::optional<double> value);
  // What was set, by group: the part of this that checkpoints have.
  const std::vector<Numbers>& numbers() const { return set_; }
  void load(const std::vector<Numbers>& numbers);

 private:
  OptimizerConfig optimizer_;
  std::vector<size_t> group_;  // of each parameter
  std::vector<Numbers> own_, set_;
};

}  // namespace ds::test
