#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// Parses like Json::parse, but also accepts what Python's json module reads: \u0000 in values that
// are strings, NaN, and numbers beyond the range of double, which become infinities. Use it for
// data only: names, paths and options would end at a zero byte in C, and a number of an option must
// be finite.
Json parse_json_data(std::string_view text, std::string_view source = "json");

}  // namespace ds
