#pragma once
#include <span>
#include <string>

#include "core/base/json.h"

namespace ds {

// Members of the JSON options of a tool, whose values are refused with DS_ERROR_CONFIG naming `key`.

// A string of `allowed`.
const std::string& option_word(const std::string& key, const Json& value,
                               std::span<const std::string> allowed);
// An integer in [low, high].
int64_t option_integer(const std::string& key, const Json& value, int64_t low, int64_t high);
// Throws: no option of `keys` is called `key`.
[[noreturn]] void unknown_option(const std::string& key, std::span<const std::string> keys);

}  // namespace ds
