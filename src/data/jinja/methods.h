#pragma once
#include <string_view>

#include "data/jinja/arguments.h"
#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// Whether object.name is a method of Python's type, which hides a key of that name.
bool is_method(const Value& object, std::string_view name);
// Throws Fault by name for methods that libds lacks, and for those that change their object, which
// the sandbox of Transformers refuses.
Value call_method(const Value& object, std::string_view name, Arguments arguments, Budget& budget);

}  // namespace ds::jinja
