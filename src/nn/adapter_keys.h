#pragma once
#include <cstdint>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// A choice of modules as PEFT writes it: a list of names, where a name chooses each module that
// equals it or ends with it after a dot, or one regular expression that must match the whole name.
// Both are empty if nothing is chosen.
struct ModuleNames {
  std::vector<std::string> names;
  std::string expression;
  bool empty() const { return names.empty() && expression.empty(); }
};

// Numbers for the modules whose names match a pattern. The first pattern that matches decides.
using ModuleNumbers = std::vector<std::pair<std::string, double>>;

// The value of target_modules that stands for every linear layer except the head.
inline constexpr const char* kAllLinear = "all-linear";

// The section `adapter` of the configuration: a low-rank adapter (Hu et al., arXiv:2106.09685) with
// the keys of PEFT.
struct AdapterKeys {
  // "lora", or "" without an adapter.
  std::string type;
  // A folder that PEFT or libds saved. Its adapter_config.json gives all other keys.
  std::string folder;
  int64_t r = 8;
  double alpha = 8, dropout = 0;
  ModuleNames target_modules, exclude_modules;
  ModuleNumbers rank_pattern, alpha_pattern;
  std::vector<int64_t> layers_to_transform;
  std::vector<std::string> layers_pattern, modules_to_save;
  // Whether the product is scaled by alpha / sqrt(r) instead of alpha / r (arXiv:2312.03732).
  bool use_rslora = false;
  // "true", "false" or "gaussian", as PEFT's init_lora_weights.
  std::string init = "true";
  // The biases that are trained: "none", "all", or "lora_only" for those of adapted layers.
  std::string bias = "none";

  bool on() const { return !type.empty(); }
};

// Returns an expression of these keys, whose matches take polynomial time. Throws
// std::regex_error.
std::regex module_expression(const std::string& text);

// Appends the keys of `adapter`.
void adapter_keys(KeyList& keys);

// Sets the type if the document has the section, and refuses an adapter without target_modules.
void complete_adapter(Config& config);

// Returns the values of PEFT's keys, as adapter_config.json has them.
Json adapter_json(const AdapterKeys& keys);

}  // namespace ds
