// Numbers with Python's results where those of C++ differ: comparisons of integers with floats,
// powers, quotients of integers, and texts of numbers.
#include "text/jinja/numbers.h"

#include <utf8proc.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

#include "core/base/utf8.h"
#include "text/jinja/fault.h"
#include "text/jinja/python_text.h"

namespace ds::text::jinja {
namespace {

// The number of digits that Python's int() reads at most.
constexpr size_t kMostDigits = 4300;

bool is_decimal(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point)) == UTF8PROC_CATEGORY_ND;
}

// Returns what int() and float() read instead of a character that is not ASCII; no number contains
// '?'. Unicode assigns decimal digits in runs from 0 to 9, and runs may follow each other.
char replaced(char32_t point) {
  if (is_space(point)) return ' ';
  if (!is_decimal(point)) return '?';
  char32_t first = point;
  while (is_decimal(first - 1)) --first;
  return static_cast<char>('0' + (point - first) % 10);
}

// Returns the text without a plus sign, which from_chars does not read; "" if another sign follows.
std::string_view without_plus(std::string_view text) {
  if (!text.starts_with('+')) return text;
  text.remove_prefix(1);
  return text.starts_with('-') ? std::string_view() : text;
}

// Returns what a number beyond the range of a float is rounded to: an infinity or a zero.
// from_chars does not say which of them. The power of ten of the first nonzero digit does.
double rounded_to_range(std::string_view text) {
  const double sign = text.starts_with('-') ? -1 : 1;
  const size_t end = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, end);
  std::string_view exponent = text.substr(std::min(end + 1, text.size()));
  int64_t power = 0;
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  if (std::from_chars(exponent.data(), exponent.data() + exponent.size(), power).ec ==
      std::errc::result_out_of_range)
    power = exponent.starts_with('-') ? INT64_MIN / 2 : INT64_MAX / 2;
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), digits.size())),
             first = static_cast<int64_t>(digits.find_first_of("123456789"));
  return point - first + power > 0 ? sign * HUGE_VAL : sign * 0.0;
}

}  // namespace

// Compares without rounding: first with the range of int64, then with the whole part of the float,
// which is an int64, and last with its fraction.
std::partial_ordering exact_order(int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= 0x1p63) return std::partial_ordering::less;
  if (b < -0x1p63) return std::partial_ordering::greater;
  const double whole = std::trunc(b);
  if (auto found = a <=> static_cast<int64_t>(whole); found != 0) return found;
  return whole <=> b;
}

// Infinite arguments have the results of C.
double power(double a, double b) {
  const bool finite = std::isfinite(a) && std::isfinite(b);
  if (finite && a == 0 && b < 0)
    fault(DS_ERROR_CONFIG, "'**': 0 cannot be raised to the negative power {}", b);
  if (finite && a < 0 && b != std::trunc(b)) {
    fault(DS_ERROR_UNSUPPORTED, "{} ** {} is a complex number, which is unsupported", a, b);
  }
  const double out = std::pow(a, b);
  if (finite && std::isinf(out)) {
    fault(DS_ERROR_CONFIG, "{} ** {} is beyond the range of a float", a, b);
  }
  return out;
}

// The integer quotient has at least 55 bits, and its last bit is set if there is a rest. So its
// conversion rounds as the exact quotient would be rounded.
double ratio(int64_t a, int64_t b) {
  using Wide = unsigned __int128;
  auto magnitude = [](int64_t v) { return v < 0 ? -static_cast<uint64_t>(v) : uint64_t(v); };
  const uint64_t n = magnitude(a), d = magnitude(b);
  const int shift =
      std::max(0, 55 + static_cast<int>(std::bit_width(d)) - static_cast<int>(std::bit_width(n)));
  if (n == 0) return b < 0 ? -0.0 : 0.0;
  const Wide shifted = static_cast<Wide>(n) << shift;
  const auto whole = static_cast<uint64_t>(shifted / d) | (shifted % d != 0 ? 1 : 0);
  const double out = std::ldexp(static_cast<double>(whole), -shift);
  return (a < 0) != (b < 0) ? -out : out;
}

std::string number_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t size = std::max<size_t>(utf8_sequence(text), 1);
    const bool ascii = static_cast<unsigned char>(text[0]) < 0x80;
    out += ascii ? text[0] : utf8_sequence(text) > 0 ? replaced(utf8_first(text)) : '?';
    text.remove_prefix(size);
  }
  // The separators U+001C to U+001F, which str.strip removes, are not spaces here.
  constexpr const char* kSpaces = " \t\n\v\f\r";
  const size_t begin = out.find_first_not_of(kSpaces);
  return begin == out.npos ? "" : out.substr(begin, out.find_last_not_of(kSpaces) + 1 - begin);
}

// from_chars also reads "nan(...)", unlike Python.
std::optional<double> read_real(const std::string& text) {
  const std::string_view digits = without_plus(text);
  double out = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (digits.empty() || end != digits.data() + digits.size() || digits.ends_with(')'))
    return std::nullopt;
  if (error == std::errc::result_out_of_range) return rounded_to_range(digits);
  return error == std::errc() ? std::optional(out) : std::nullopt;
}

std::optional<int64_t> read_integer(const std::string& text) {
  const std::string_view digits = without_plus(text);
  int64_t out = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (digits.empty() || end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc()) return out;
  if (error != std::errc::result_out_of_range) return std::nullopt;
  if (digits.size() - (digits.starts_with('-') ? 1 : 0) > kMostDigits) return std::nullopt;
  fault(DS_ERROR_UNSUPPORTED, "int cannot convert {}: it has more than 64 bits",
        digits.size() <= 40 ? std::string(digits) : std::string(digits.substr(0, 37)) + "...");
}

}  // namespace ds::text::jinja
