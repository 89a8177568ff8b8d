#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace ds {

// A value of optimizer.type, the names that optimizer.params may have with it, and its defaults. In
// DeepSpeed and PyTorch the default of a parameter depends on the optimizer, so each type has its
// own.
struct OptimizerType {
  // The name as it is printed. Configurations may write it in upper or lower case.
  std::string name;
  // The names that optimizer.params may have beside lr and weight_decay, which all types have.
  std::vector<std::string_view> params;
  OptimizerConfig defaults;
};

const std::vector<OptimizerType>& optimizer_types();
// Registers a type. Throws DS_ERROR_INVALID_ARGUMENT if the name is taken. Not thread-safe
// (optim/optimizer.h).
void add_optimizer_type(OptimizerType type);

// Returns whether optimizer.params may have this name with the type of `optimizer`.
bool has_param(const OptimizerConfig& optimizer, std::string_view name);

}  // namespace ds
