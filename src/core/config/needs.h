#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace ds {

// A rule between two keys: some values of `key` need or exclude some values of `other`. Values are
// written as in JSON, but texts without quotes.
struct ConfigNeed {
  enum Kind { needs, excludes };

  const char* key;
  // The values of `key` to which the rule applies. If empty, it applies to every given value.
  std::vector<std::string_view> when;
  Kind kind;
  const char* other;
  // The values that `other` must have (needs) or must not have (excludes).
  std::vector<std::string_view> values;
  // The end of the message, which is otherwise generated from the rule.
  const char* reason = "";
  // If not null, the format of the whole message after the key. Its first {} is the value of `key`
  // and its second {} the value of `other`, both without quotes.
  const char* says = nullptr;
};

// Throws DS_ERROR_CONFIG for the first rule that a given key breaks. Defaults never break a rule.
void check_needs(const Config& config, std::span<const ConfigNeed> needs);

}  // namespace ds
