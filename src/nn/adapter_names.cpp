// Which layers get an adapter, and what its parameters are called. The rules are those of PEFT
// 0.21; tests/adapters/names_test.cpp compares them with PEFT's own answers.
#include "nn/adapter_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <regex>

#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds {
namespace {

constexpr std::array<std::string_view, 2> kEnds{".lora_A.default.weight", ".lora_B.default.weight"};

bool matches(const ModuleNames& modules, const std::string& module) {
  if (!modules.expression.empty())
    return std::regex_match(module, module_expression(modules.expression));
  return std::ranges::any_of(modules.names,
                             [&](const std::string& name) { return is_named(name, module); });
}

// Returns the index of the layer that the module lies in, or -1. With patterns, it is the number
// after the first pattern that the name has as a part; otherwise the first number with two parts
// before it.
int64_t layer_of(const AdapterKeys& keys, const std::string& module) {
  std::smatch found;
  auto begins = [&](const std::string& pattern) {
    return std::regex_search(module, found, module_expression(pattern),
                             std::regex_constants::match_continuous);
  };
  bool any = keys.layers_pattern.empty() && begins(R"(.*?\.[^.]*\.(\d+)\.)");
  for (const std::string& pattern : keys.layers_pattern)
    any = any || begins("(?:|.*?\\.)(?:" + pattern + ")\\.(\\d+)\\.");
  int64_t index = -1;
  const std::string digits = any ? found[found.size() - 1].str() : "";
  std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return index;
}

// Returns the number of the first pattern that matches the module, or `otherwise`.
double number_of(const ModuleNumbers& numbers, const std::string& module, double otherwise) {
  for (const auto& [pattern, number] : numbers) {
    if (std::regex_match(module, module_expression("(?:.*\\.)?(?:" + pattern + ")"))) return number;
  }
  return otherwise;
}

}  // namespace

std::string adapter_param(std::string_view module, AdapterPart part) {
  return std::string(module) + std::string(kEnds[part == AdapterPart::a ? 0 : 1]);
}

std::string adapted_module(std::string_view param) {
  for (std::string_view end : kEnds) {
    if (param.ends_with(end)) return std::string(param.substr(0, param.size() - end.size()));
  }
  return "";
}

std::string_view module_of(std::string_view param) {
  const size_t dot = param.rfind('.');
  return dot == param.npos ? param : param.substr(0, dot);
}

bool is_named(const std::string& name, std::string_view module) {
  if (module == name) return true;
  return module.size() > name.size() && module.ends_with(name) &&
         module[module.size() - name.size() - 1] == '.';
}

bool is_target(const AdapterKeys& keys, const std::string& module) {
  if (!keys.exclude_modules.empty() && matches(keys.exclude_modules, module)) return false;
  // A module inside one that is saved as a whole gets no adapter.
  for (const std::string& saved : keys.modules_to_save) {
    const std::string inside = "." + module + ".";
    if (inside.find("." + saved + ".") != inside.npos) return false;
  }
  if (keys.target_modules.expression == kAllLinear) return true;
  if (!matches(keys.target_modules, module)) return false;
  // A complete name chooses its layer whatever layers_to_transform says.
  if (contains(keys.target_modules.names, module)) return true;
  return keys.layers_to_transform.empty() ||
         contains(keys.layers_to_transform, layer_of(keys, module));
}

int64_t rank_of(const AdapterKeys& keys, const std::string& module) {
  return static_cast<int64_t>(number_of(keys.rank_pattern, module, static_cast<double>(keys.r)));
}

double scale_of(const AdapterKeys& keys, const std::string& module) {
  const auto rank = static_cast<double>(rank_of(keys, module));
  const double alpha = number_of(keys.alpha_pattern, module, keys.alpha);
  return alpha / (keys.use_rslora ? std::sqrt(rank) : rank);
}

bool is_saved_module(const AdapterKeys& keys, std::string_view module) {
  for (std::string_view at = module;; at = module_of(at)) {
    const bool named = std::ranges::any_of(
        keys.modules_to_save, [&](const std::string& end) { return at.ends_with(end); });
    if (named) return true;
    if (at.find('.') == at.npos) return false;
  }
}

}  // namespace ds
