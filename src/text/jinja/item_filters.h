#pragma once
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// The function by which `map` applies another filter.
using ApplyFilter = Value (*)(std::string_view name, const Value& value, Arguments arguments,
                              Budget& budget);
// Returns whether a filter works on the items of a sequence: map, select, reject, selectattr,
// rejectattr, sort, unique, min, max, sum, dictsort.
bool is_item_filter(std::string_view name);
// Applies a filter for which is_item_filter() returns true.
Value apply_item_filter(std::string_view name, const Value& value, const Arguments& arguments,
                        Budget& budget, ApplyFilter apply);

// Returns the part of an item that a parameter `attribute` selects: a path of attributes such as
// "a.b", or an index.
Value path_of(const Value& item, const Value& path, Budget& budget);

}  // namespace ds::text::jinja
