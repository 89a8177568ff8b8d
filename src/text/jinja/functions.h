#pragma once
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// Returns the name of a function that templates can call by name (range, dict, namespace,
// raise_exception, strftime_now) as a static text, or "" for any other name. Throws Fault for
// functions of Jinja that libds lacks.
std::string_view function_name(std::string_view name);
// Calls a function of function_name(). raise_exception always throws Fault.
Value call_function(std::string_view name, Arguments arguments, Budget& budget);
// Calls a method of the variable `loop`; cycle is the only one.
Value loop_method(const Loop& loop, std::string_view name, Arguments arguments);

}  // namespace ds::text::jinja
