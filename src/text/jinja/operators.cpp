// Operators of two values with Python's meaning: `//` rounds down, `/` returns a float, and
// integers beyond 64 bits are refused.
#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "text/jinja/fault.h"
#include "text/jinja/numbers.h"

namespace ds::text::jinja {
namespace {

[[noreturn]] void refuse(std::string_view mark, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  fault(DS_ERROR_CONFIG, "'{}' cannot be applied to a {} and a {}", mark, a.kind(), b.kind());
}

[[noreturn]] void too_large(std::string_view mark) {
  fault(DS_ERROR_UNSUPPORTED, "the result of '{}' has more than 64 bits", mark);
}

// Overflow is detected by the compiler's builtins and refused.
Value integers(std::string_view mark, int64_t a, int64_t b) {
  int64_t out = 0;
  if (mark == "+" && !__builtin_add_overflow(a, b, &out)) return Value::of(out);
  if (mark == "-" && !__builtin_sub_overflow(a, b, &out)) return Value::of(out);
  if (mark == "*" && !__builtin_mul_overflow(a, b, &out)) return Value::of(out);
  if (mark == "/" || mark == "//" || mark == "%") {
    if (b == 0) fault(DS_ERROR_CONFIG, "division by 0");
    if (mark == "/") return Value::of(ratio(a, b));
    if (b == -1 && mark == "%") return Value::of(int64_t{0});
    if (b == -1 && a == INT64_MIN) too_large(mark);
    int64_t rest = a % b;
    // Python rounds down, C towards zero.
    bool down = rest != 0 && (rest < 0) != (b < 0);
    if (mark == "%") return Value::of(down ? rest + b : rest);
    return Value::of(a / b - (down ? 1 : 0));
  }
  if (mark == "**" && b >= 0) {
    out = 1;
    // The loop ends soon: the product overflows after at most 64 rounds.
    for (int64_t i = 0; i < b; ++i) {
      if (a == 1 || a == 0) return Value::of(b == 0 ? int64_t{1} : a);
      if (a == -1) return Value::of(int64_t{b % 2 == 0 ? 1 : -1});
      if (__builtin_mul_overflow(out, a, &out)) too_large(mark);
    }
    return Value::of(out);
  }
  if (mark == "**") return Value::of(power(static_cast<double>(a), static_cast<double>(b)));
  too_large(mark);
}

// Python's a % b has the sign of b, which must not be 0.
double remainder_of(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

// Python's a // b. Without the remainder, the quotient is an integer except for rounding.
double quotient_of(double a, double b) {
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value reals(std::string_view mark, double a, double b) {
  if (mark == "+") return Value::of(a + b);
  if (mark == "-") return Value::of(a - b);
  if (mark == "*") return Value::of(a * b);
  if (mark == "**") return Value::of(power(a, b));
  if (b == 0) fault(DS_ERROR_CONFIG, "division by 0");
  if (mark == "/") return Value::of(a / b);
  return Value::of(mark == "%" ? remainder_of(a, b) : quotient_of(a, b));
}

// Repeats a text, list or tuple. Pays for the bytes of the result before creating it.
Value repeated(const Value& sequence, int64_t times, Budget& budget) {
  auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  size_t one =
      sequence.is_text() ? sequence.text().size() : sequence.items().items.size() * sizeof(Value);
  size_t bytes = 0;
  if (__builtin_mul_overflow(one, count, &bytes)) bytes = SIZE_MAX;
  budget.memory(bytes);
  if (sequence.is_text()) {
    std::string out;
    out.reserve(bytes);
    for (size_t i = 0; i < count && one > 0; ++i) out += sequence.text();
    return Value::paid(std::move(out));
  }
  Values out;
  for (size_t i = 0; i < count && one > 0; ++i) {
    out.insert(out.end(), sequence.items().items.begin(), sequence.items().items.end());
  }
  return Value::list(std::move(out), sequence.items().tuple);
}

// Joins two texts, two lists or two tuples; refuses any other pair, even a list and a tuple.
Value added(const Value& a, const Value& b, Budget& budget) {
  if (a.is_text() && b.is_text()) {
    budget.memory(a.text().size() + b.text().size());
    return Value::paid(a.text() + b.text());
  }
  if (!a.is_list() || !b.is_list() || a.items().tuple != b.items().tuple) refuse("+", a, b);
  Values out = a.items().items;
  out.insert(out.end(), b.items().items.begin(), b.items().items.end());
  budget.memory(out.size() * sizeof(Value));
  return Value::list(std::move(out), a.items().tuple);
}

}  // namespace

// `~` joins the texts of any two values.
Value binary(std::string_view mark, const Value& a, const Value& b, Budget& budget) {
  if (mark == "~") {
    return Value::of(a.str(budget) + b.str(budget), budget);
  }
  if (a.is_number() && b.is_number()) {
    bool real = a.is_real() || b.is_real();
    return real ? reals(mark, a.number(), b.number()) : integers(mark, a.integer(), b.integer());
  }
  if (mark == "+") return added(a, b, budget);
  auto whole = [](const Value& v) { return v.is_int() || v.is_bool(); };
  if (mark == "*" && (a.is_text() || a.is_list()) && whole(b))
    return repeated(a, b.integer(), budget);
  if (mark == "*" && (b.is_text() || b.is_list()) && whole(a))
    return repeated(b, a.integer(), budget);
  if (mark == "%" && a.is_text()) fault(DS_ERROR_UNSUPPORTED, "formatting by '%' is unsupported");
  refuse(mark, a, b);
}

Value signed_value(std::string_view mark, const Value& value) {
  require_defined(value);
  if (!value.is_number())
    fault(DS_ERROR_CONFIG, "'{}' cannot be applied to a {}", mark, value.kind());
  if (value.is_real()) return Value::of(mark == "-" ? -value.number() : value.number());
  if (mark == "+") return Value::of(value.integer());
  if (value.integer() == INT64_MIN) too_large(mark);
  return Value::of(-value.integer());
}

bool compare(std::string_view word, const Value& a, const Value& b, Budget& budget) {
  if (word == "==") return equal(a, b, budget);
  if (word == "!=") return !equal(a, b, budget);
  if (word == "in") return contains(b, a, budget);
  if (word == "not in") return !contains(b, a, budget);
  require_defined(a);
  require_defined(b);
  if (word == "<") return less(a, b, budget);
  if (word == ">") return less(b, a, budget);
  if (a.is_number() && b.is_number())
    return word == "<=" ? number_order(a, b) <= 0 : number_order(a, b) >= 0;
  return word == "<=" ? !less(b, a, budget) : !less(a, b, budget);
}

}  // namespace ds::text::jinja
