#pragma once
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// Returns whether there is a test for `value is name(...)`.
bool is_test(std::string_view name);
// Applies a test. Throws Fault for an unknown test or a wrong number of arguments.
bool apply_test(std::string_view name, const Value& value, Arguments arguments, Budget& budget);

}  // namespace ds::text::jinja
