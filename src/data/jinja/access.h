#pragma once
#include <string_view>

#include "data/jinja/arguments.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// object.name and object[index] of Jinja: what is not there is undefined; of an undefined object it is a
// fault.
Value attribute(const Value& object, std::string_view name, Budget& budget);
Value item(const Value& object, const Value& index, Budget& budget);
// object[begin:end:step]; undefined: not given.
Value slice(const Value& object, const Value& begin, const Value& end, const Value& step, Budget& budget);

// Whether object.name is a method of Python's type, which hides a key of that name.
bool is_method(const Value& object, std::string_view name);
// Throws Fault by name for methods that libds lacks, and for those that change their object, which the
// sandbox of Transformers refuses.
Value call_method(const Value& object, std::string_view name, Arguments arguments, Budget& budget);

}  // namespace ds::jinja
