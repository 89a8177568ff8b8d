#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// As Json::parse, for data: texts may have \u0000, which names, paths and options may not.
Json parse_json_data(std::string_view text, std::string_view source = "json");

}  // namespace ds
