#pragma once
#include <span>
#include <string>

#include "core/base/json_read.h"

namespace ds {

// The JSON `options` of a call, whose members are read one by one.
inline JsonReader read_options(const Json& document) { return {"options", document}; }

// Throws DS_ERROR_CONFIG: no option of `keys` is called `key`.
[[noreturn]] void unknown_option(const std::string& key, std::span<const std::string> keys);

}  // namespace ds
