#pragma once
#include <string_view>

#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// object.name and object[index] of Jinja: what is not there is undefined; of an undefined object it
// is a fault.
Value attribute(const Value& object, std::string_view name, Budget& budget);
Value item(const Value& object, const Value& index, Budget& budget);
// object[begin:end:step]; undefined: not given.
Value slice(const Value& object, const Value& begin, const Value& end, const Value& step,
            Budget& budget);

}  // namespace ds::jinja
