#pragma once
#include <string_view>

#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// Computes a + b and the other operators of two values: + - * / // % ** ~. Throws Fault for
// operands that Python refuses and for integers beyond 64 bits.
Value binary(std::string_view mark, const Value& a, const Value& b, Budget& budget);
// Computes - or + before a value.
Value signed_value(std::string_view mark, const Value& value);
// Compares by == != < <= > >=, in, or not in.
bool compare(std::string_view word, const Value& a, const Value& b, Budget& budget);

}  // namespace ds::text::jinja
