#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace ds {

// A value of optimizer.type, and which names optimizer.params may have with it. DeepSpeed and
// PyTorch give one name different defaults in different optimizers, so each type brings its own.
struct OptimizerType {
  std::string name;  // as written; configurations may use any case
  std::vector<std::string_view>
      params;  // names in optimizer.params; lr and weight_decay belong to all
  OptimizerConfig defaults;
};

const std::vector<OptimizerType>& optimizer_types();

// Whether optimizer.params may have this name with the type of `optimizer`.
bool has_param(const OptimizerConfig& optimizer, std::string_view name);

}  // namespace ds
