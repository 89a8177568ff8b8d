#pragma once
#include <string_view>

#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// These functions return object.name and object[index] as in Jinja. A member that does not exist is
// undefined; reading a member of an undefined object is a fault.
Value attribute(const Value& object, std::string_view name, Budget& budget);
Value item(const Value& object, const Value& index, Budget& budget);
// Returns object[begin:end:step]. A bound or step that is undefined or None counts as not given.
Value slice(const Value& object, const Value& begin, const Value& end, const Value& step,
            Budget& budget);

}  // namespace ds::text::jinja
