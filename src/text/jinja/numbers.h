#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ds::text::jinja {

// Numbers as Python computes, orders and reads them.

// Returns the order of an integer and a float, without rounding the integer to a float. The order
// is `unordered` if the float is NaN.
std::partial_ordering exact_order(int64_t a, double b);
// Returns a ** b of floats. Throws Fault if Python raises, which is for a negative power of 0 and
// for a result beyond the range of a float, and if the result is a complex number.
double power(double a, double b);
// Returns a / b of integers, rounded once. `b` must not be 0.
double ratio(int64_t a, int64_t b);

// Returns a text in the form in which int() and float() read it: without spaces at its ends, and
// with decimal digits of all scripts as ASCII digits.
std::string number_text(std::string_view text);
// Returns float(text) of a text from number_text() or of a literal, or none if it is not a number.
std::optional<double> read_real(const std::string& text);
// Returns int(text) of a text from number_text(), or none if it is not an integer or has more
// digits than Python reads. Throws Fault for other integers beyond 64 bits.
std::optional<int64_t> read_integer(const std::string& text);

}  // namespace ds::text::jinja
