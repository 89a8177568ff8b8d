#pragma once
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// Returns whether there is a filter for `value | name(...)`. As in Transformers, `tojson` does not
// escape for HTML.
bool is_filter(std::string_view name);
// Applies a filter. Throws Fault for an unknown filter, wrong arguments, or a value that the filter
// refuses.
Value apply_filter(std::string_view name, const Value& value, Arguments arguments, Budget& budget);

}  // namespace ds::text::jinja
