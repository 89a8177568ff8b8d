// Which layers get an adapter, and what its parameters are called. The rules are those of PEFT
// 0.21; tests/adapters/names_test.cpp compares them with PEFT's own answers.
#include "nn/adapter_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <regex>

#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds {
namespace {

// In the order of AdapterPart.
constexpr std::array<std::string_view, 3> kParts{".lora_A", ".lora_B", ".lora_magnitude_vector"};
constexpr std::string_view kWeight = ".weight";

// Returns whether an expression matches the module under one of its names.
bool matches(const std::string& expression, const std::string& module) {
  const std::regex regex = module_expression(expression);
  return std::regex_match(module, regex) ||
         std::regex_match(std::string(peft_module(module)), regex);
}

bool matches(const ModuleNames& modules, const std::string& module) {
  if (!modules.expression.empty()) return matches(modules.expression, module);
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
    if (matches("(?:.*\\.)?(?:" + pattern + ")", module)) return number;
  }
  return otherwise;
}

}  // namespace

std::string adapter_param(std::string_view module, AdapterPart part, std::string_view adapter) {
  return fmt::format("{}{}.{}{}", module, kParts[static_cast<size_t>(part)], adapter, kWeight);
}

AdapterParam split_adapter_param(std::string_view param) {
  if (!param.ends_with(kWeight)) return {};
  const std::string_view named = param.substr(0, param.size() - kWeight.size());
  const size_t dot = named.rfind('.');
  if (dot == named.npos || dot + 1 == named.size()) return {};
  const std::string_view before = named.substr(0, dot);
  for (std::string_view part : kParts) {
    if (before.ends_with(part))
      return {before.substr(0, before.size() - part.size()), part, named.substr(dot + 1)};
  }
  return {};
}

std::string_view module_of(std::string_view param) {
  const size_t dot = param.rfind('.');
  return dot == param.npos ? param : param.substr(0, dot);
}

std::string_view peft_module(std::string_view module) {
  return module == "embed_out" ? "lm_head" : module;
}

bool is_named(const std::string& name, std::string_view module) {
  if (module == name || peft_module(module) == name) return true;
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
    const bool named = std::ranges::any_of(keys.modules_to_save, [&](const std::string& end) {
      return at.ends_with(end) || peft_module(at) == end;
    });
    if (named) return true;
    if (at.find('.') == at.npos) return false;
  }
}

}  // namespace ds
