#pragma once
#include <string_view>

#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// a + b and the other operators of two values: + - * / // % ** ~. Throws Fault for operands that
// Python refuses and for integers beyond 64 bits.
Value binary(std::string_view mark, const Value& a, const Value& b, Budget& budget);
// - or + before a value.
Value signed_value(std::string_view mark, const Value& value);
// == != < <= > >= in, not in
bool compare(std::string_view word, const Value& a, const Value& b, Budget& budget);

}  // namespace ds::jinja
