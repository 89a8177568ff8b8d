#pragma once
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// Returns whether object.name is a method of Python's type, which hides a key of that name.
bool is_method(const Value& object, std::string_view name);
// Calls a method. Throws Fault, naming the method, for methods that libds lacks and for those that
// change their object, which the sandbox of Transformers refuses.
Value call_method(const Value& object, std::string_view name, Arguments arguments, Budget& budget);

}  // namespace ds::text::jinja
