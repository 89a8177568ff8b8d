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

// The name of the adapter that is trained, which is PEFT's default, and the name that stands for
// the base without adapters.
inline constexpr const char* kOwnAdapter = "default";
inline constexpr const char* kNoAdapter = "base";
// The number of the base without adapters. The own adapter has number 0, and others[i] i + 1.
inline constexpr int kNoAdapterNumber = -1;

// The section `adapter` of the configuration: a low-rank adapter (Hu et al., arXiv:2106.09685) with
// the keys of PEFT.
struct AdapterKeys {
  // The name of the adapter: kOwnAdapter, or the name that adapter.others gives it.
  std::string name = kOwnAdapter;
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
  // Whether each adapted weight has a trained magnitude for each output (DoRA, arXiv:2402.09353).
  bool use_dora = false;
  // "true", "false" or "gaussian", as PEFT's init_lora_weights.
  std::string init = "true";
  // The biases that are trained: "none", "all", or "lora_only" for those of adapted layers.
  std::string bias = "none";

  // Frozen adapters on the same base, each with the keys of its folder.
  std::vector<AdapterKeys> others;

  bool on() const { return !type.empty(); }
  // Returns whether the adapter trains parameters of the base, which all adapters share.
  bool trains_base() const { return !modules_to_save.empty() || bias != "none"; }
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

// Returns, by name, the keys on which the product of each adapter depends besides its tensors.
Json product_keys(const AdapterKeys& keys);
// Throws DS_ERROR_CONFIG if an adapter has another of these keys than `saved`, which
// product_keys() made when checkpoint `path` was saved.
void check_product_keys(const AdapterKeys& keys, const Json& saved, const std::string& path);

// The folder of an adapter and the name that it gets.
struct NamedFolder {
  std::string name, folder;
};
// Reads texts of the form NAME=DIR. Throws DS_ERROR_CONFIG, naming `path`, for another form, a name
// that is reserved or has other characters than letters, digits, _ and -, and for two equal names.
std::vector<NamedFolder> named_folders(const std::string& path,
                                       const std::vector<std::string>& texts);

// Returns the adapter of a number above kNoAdapterNumber.
const AdapterKeys& adapter_of(const AdapterKeys& keys, int number);
// Returns the numbers that evaluation can choose: that of the own adapter first. The base without
// adapters is among them unless the adapter trains some of its parameters.
std::vector<int> adapter_numbers(const AdapterKeys& keys);
// Returns the number of the adapter `name`. Throws DS_ERROR_NOT_FOUND for an unknown name and
// DS_ERROR_STATE for a base whose parameters the adapter trains.
int adapter_number(const AdapterKeys& keys, const std::string& name);

}  // namespace ds
