#pragma once
#include <string_view>

#include "data/jinja/arguments.h"
#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// The filters of `value | name(...)`. `tojson` is the one of Transformers, which escapes nothing
// for HTML.
bool is_filter(std::string_view name);
Value apply_filter(std::string_view name, const Value& value, Arguments arguments, Budget& budget);

}  // namespace ds::jinja
