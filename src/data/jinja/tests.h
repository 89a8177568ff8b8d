#pragma once
#include <string_view>

#include "data/jinja/arguments.h"
#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// The tests of `value is name(...)`.
bool is_test(std::string_view name);
bool apply_test(std::string_view name, const Value& value, Arguments arguments, Budget& budget);

}  // namespace ds::jinja
