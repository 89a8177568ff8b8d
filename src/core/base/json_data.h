#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// Parses like Json::parse, but accepts \u0000 in values that are strings. Use it for data only:
// names, paths and options would end at such a byte in C.
Json parse_json_data(std::string_view text, std::string_view source = "json");

}  // namespace ds
