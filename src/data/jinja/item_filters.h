#pragma once
#include <string_view>

#include "data/jinja/arguments.h"
#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// Filters that look at the items of a sequence: map, select, reject, selectattr, rejectattr, sort,
// unique, min, max, sum, dictsort. apply: what `map` applies filters by.
using ApplyFilter = Value (*)(std::string_view name, const Value& value, Arguments arguments,
                              Budget& budget);
bool is_item_filter(std::string_view name);
Value apply_item_filter(std::string_view name, const Value& value, const Arguments& arguments,
                        Budget& budget, ApplyFilter apply);

// The attribute "a.b" or 0 of an item, as parameters `attribute` name it.
Value path_of(const Value& item, const Value& path, Budget& budget);

}  // namespace ds::jinja
