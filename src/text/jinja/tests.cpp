// The tests. Each is a row of a table: whether it has an argument, and a function.
#include "text/jinja/tests.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "text/jinja/fault.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace ds::text::jinja {
namespace {

using V = const Value&;
using A = const Arguments&;
using B = Budget&;

struct Test {
  std::string_view name;
  // True if the test has an argument.
  bool binary;
  bool (*run)(V value, A arguments, B budget);
};

// Returns whether `value % by` is `rest`; used by odd, even and divisibleby.
bool leaves(int64_t rest, V value, V by, B budget) {
  return equal(binary("%", value, by, budget), Value::of(rest), budget);
}

bool equals(V a, A b, B budget) { return equal(a, b.at(0), budget); }
bool differs(V a, A b, B budget) { return !equal(a, b.at(0), budget); }
bool below(V a, A b, B budget) { return less(a, b.at(0), budget); }
bool above(V a, A b, B budget) { return less(b.at(0), a, budget); }
bool at_most(V a, A b, B budget) { return less(a, b.at(0), budget) || equal(a, b.at(0), budget); }
bool at_least(V a, A b, B budget) { return less(b.at(0), a, budget) || equal(a, b.at(0), budget); }
bool sequence(V v, A, B) {
  return v.is_text() || v.is_list() || v.is_dict() || v.is_undefined() ||
         v.is_series(Series::Kind::range);
}
bool iterable(V v, A a, B b) { return v.is_series() || sequence(v, a, b); }
// These functions return Python's islower() and isupper() of the text that {{ }} prints.
bool all_lower(V v, A, B b) { return is_lower(v.str(b)); }
bool all_upper(V v, A, B b) { return is_upper(v.str(b)); }

// Jinja's `sameas` is Python's `is`, which for values from JSON is equality within one kind.
bool same(V a, A b, B budget) {
  V other = b.at(0);
  return a.is_bool() == other.is_bool() && a.is_real() == other.is_real() &&
         equal(a, other, budget);
}

const std::vector<Test>& tests() {
  static const auto& all = *new std::vector<Test>{
      {"defined", false, [](V v, A, B) { return !v.is_undefined(); }},
      {"undefined", false, [](V v, A, B) { return v.is_undefined(); }},
      {"none", false, [](V v, A, B) { return v.is_none(); }},
      {"boolean", false, [](V v, A, B) { return v.is_bool(); }},
      {"true", false, [](V v, A, B) { return v.is_bool() && v.truth(); }},
      {"false", false, [](V v, A, B) { return v.is_bool() && !v.truth(); }},
      {"integer", false, [](V v, A, B) { return v.is_int(); }},
      {"float", false, [](V v, A, B) { return v.is_real(); }},
      {"number", false, [](V v, A, B) { return v.is_number(); }},
      {"string", false, [](V v, A, B) { return v.is_text(); }},
      {"mapping", false, [](V v, A, B) { return v.is_dict(); }},
      {"sequence", false, sequence},
      {"iterable", false, iterable},
      {"callable", false,
       [](V v, A, B) { return v.is_function() || v.is_macro() || v.is_undefined(); }},
      {"lower", false, all_lower},
      {"upper", false, all_upper},
      {"odd", false, [](V v, A, B b) { return leaves(1, v, Value::of(int64_t{2}), b); }},
      {"even", false, [](V v, A, B b) { return leaves(0, v, Value::of(int64_t{2}), b); }},
      {"divisibleby", true, [](V v, A a, B b) { return leaves(0, v, a.at(0), b); }},
      {"equalto", true, equals},
      {"eq", true, equals},
      {"ne", true, differs},
      {"lt", true, below},
      {"lessthan", true, below},
      {"gt", true, above},
      {"greaterthan", true, above},
      {"le", true, at_most},
      {"ge", true, at_least},
      {"sameas", true, same},
      {"in", true, [](V v, A a, B b) { return contains(a.at(0), v, b); }},
  };
  return all;
}

// Returns the test of that name, or null. A comparison sign names a test, too, as in select() and
// selectattr().
const Test* test_named(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
      {"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {">", "gt"}, {"<=", "le"}, {">=", "ge"}};
  for (auto [mark, word] : kMarks) {
    if (mark == name) name = word;
  }
  auto at = std::find_if(tests().begin(), tests().end(),
                         [&](const Test& one) { return one.name == name; });
  return at == tests().end() ? nullptr : &*at;
}

}  // namespace

bool is_test(std::string_view name) { return test_named(name) != nullptr; }

bool apply_test(std::string_view name, const Value& value, Arguments arguments, Budget& budget) {
  const Test* test = test_named(name);
  if (!test) fault(DS_ERROR_UNSUPPORTED, "test '{}' is unsupported", name);
  budget.work(value.is_text() ? value.text().size() / 64 + 1 : 1);
  arguments.expect(std::string(name), test->binary ? std::vector<std::string_view>{"other"}
                                                   : std::vector<std::string_view>{});
  return test->run(value, arguments, budget);
}

}  // namespace ds::text::jinja
