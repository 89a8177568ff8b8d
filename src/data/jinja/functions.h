#pragma once
#include <string_view>

#include "data/jinja/arguments.h"
#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// The functions that templates find by name: range, dict, namespace, raise_exception, strftime_now.
// Returns a static text, "" for any other name.
std::string_view function_name(std::string_view name);
Value call_function(std::string_view name, Arguments arguments, Budget& budget);
Value loop_method(const Loop& loop, std::string_view name, Arguments arguments);

}  // namespace ds::jinja
