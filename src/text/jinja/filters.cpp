// The filters. Each is a row of a table: its parameters and a function. map, select and similar
// filters, which apply others to each item, are in item_filters.cpp.
#include "text/jinja/filters.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "text/jinja/access.h"
#include "text/jinja/fault.h"
#include "text/jinja/item_filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/numbers.h"
#include "text/jinja/python_text.h"
#include "text/jinja/to_json.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {
namespace {

using V = const Value&;
using A = const Arguments&;
using B = Budget&;

struct Filter {
  std::string_view name;
  std::vector<std::string_view> parameters;
  Value (*run)(V value, A a, B budget);
};

// Removes characters at both ends. Pays for `chars`, which strip() splits into a set of characters.
Value trim(V value, A a, B budget) {
  std::string text = value.str(budget);
  bool given = a.has(0) && !a.at(0).is_none();
  budget.work(given ? a.text(0).size() : 0);
  return Value::of(std::string(strip(text, Side::both, given ? &a.text(0) : nullptr)), budget);
}

// Returns the number of items or, for a text, of characters. A generator has no length.
Value count(V value, A, B) {
  if (value.is_undefined()) return Value::of(int64_t{0});
  if (value.is_text()) return Value::of(length(value.text()));
  if (value.is_list()) return Value::of(static_cast<int64_t>(value.items().items.size()));
  if (value.is_dict()) return Value::of(static_cast<int64_t>(value.members().items.size()));
  if (value.is_series() && !value.is_series(Series::Kind::generator))
    return Value::of(static_cast<int64_t>(value.series().items.size()));
  fault(DS_ERROR_CONFIG, "a {} has no length", value.kind());
}

// Returns the default for a missing value; with `boolean`, a value that is false is treated as
// missing, too.
Value otherwise(V value, A a, B) {
  bool missing = value.is_undefined() || (a.flag(1, false) && !value.truth());
  return missing ? a.value(0, Value::paid({})) : value;
}

// Joins the items as {{ }} shows them, unlike the method join of a text.
Value text_joined(V value, A a, B budget) {
  std::string between = a.has(0) ? a.at(0).str(budget) : "", out;
  bool first = true;
  for (const Value& one : iterate(value, budget)) {
    std::string part = (a.has(1) ? path_of(one, a.at(1), budget) : one).str(budget);
    budget.memory(part.size() + between.size());
    if (!first) out += between;
    first = false;
    out += part;
  }
  return Value::paid(std::move(out));
}

// Implements tojson with the keyword arguments of Transformers. With an indent, each item has its
// own line, and no space follows a comma.
Value json(V value, A a, B budget) {
  JsonStyle style;
  style.ensure_ascii = a.flag(0, false);
  if (a.has(1) && !a.at(1).is_none()) {
    style.lines = true;
    style.comma = ",";
    style.indent = a.at(1).is_text() ? a.text(1) : "";
    if (!a.at(1).is_text()) {
      int64_t width = std::max<int64_t>(a.integer(1, 0), 0);
      budget.memory(static_cast<size_t>(width));
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (a.has(2) && !a.at(2).is_none()) {
    Values marks = iterate(a.at(2), budget);
    if (marks.size() != 2)
      fault(DS_ERROR_CONFIG, "tojson: separators must be two, got {}", marks.size());
    style.comma = marks[0].str(budget);
    style.colon = marks[1].str(budget);
  }
  style.sort_keys = a.flag(3, false);
  return Value::paid(to_json(value, style, budget));
}

// A fault that comes after the first item is not reported.
Value first(V value, A, B budget) {
  const Given all = give(value, budget);
  if (!all.items.empty()) return all.items.front();
  tell(all.end);
  return Value::undefined("the first item of an empty sequence", budget);
}

// Jinja reverses the sequence to find its last item.
Value last(V value, A, B budget) {
  if (value.is_series(Series::Kind::generator))
    fault(DS_ERROR_CONFIG, "a generator cannot be reversed");
  Values all = iterate(value, budget);
  return all.empty() ? Value::undefined("the last item of an empty sequence", budget) : all.back();
}

Value reversed(V value, A, B budget) {
  Values all = iterate(value, budget);
  std::ranges::reverse(all);
  // Python cannot go through a generator backwards, so Jinja returns a list.
  if (value.is_series(Series::Kind::generator)) return Value::list(std::move(all));
  if (!value.is_text()) return Value::generator(std::move(all));
  std::string out;
  for (const Value& one : all) out += one.text();
  return Value::of(std::move(out), budget);
}

// Returns the pairs of a dict. As in Python, a value of another kind is reported only when the
// generator is read.
Value members(V value, A, B budget) {
  if (value.is_undefined()) return Value::generator({});
  if (!value.is_dict())
    return Value::generator(
        {},
        Fault{DS_ERROR_CONFIG, fmt::format("items: a mapping is needed, got a {}", value.kind())});
  return Value::generator(iterate(call_method(value, "items", {}, budget), budget));
}

// Returns Python's int() of a real, or `otherwise` for NaN.
Value truncated(double value, V otherwise) {
  if (std::isnan(value)) return otherwise;
  if (std::abs(value) < 9e18) return Value::of(static_cast<int64_t>(value));
  fault(std::isinf(value) ? DS_ERROR_CONFIG : DS_ERROR_UNSUPPORTED,
        "int cannot convert {}: it has more than 64 bits", value);
}

// Refuses a text with '_', which Python may accept in a number but from_chars does not.
void check_number(V value) {
  require_defined(value);
  if (value.is_text() && value.text().find('_') != std::string::npos)
    fault(DS_ERROR_UNSUPPORTED, "a number with '_' is unsupported");
}

// Returns what int() and float() read of a value that is not a number. Texts of other kinds of
// values are not numbers.
std::string number_text_of(V value, B budget) {
  const std::string text = value.str(budget);
  budget.work(text.size() / 8);
  budget.memory(text.size());
  return number_text(text);
}

// Converts to an integer. A text that is not an integer may still be a real, whose fraction is
// dropped.
Value as_integer(V value, A a, B budget) {
  check_number(value);
  const Value otherwise = a.value(0, Value::of(int64_t{0}));
  if (value.is_real()) return truncated(value.number(), otherwise);
  if (value.is_int() || value.is_bool()) return Value::of(value.integer());
  const std::string text = number_text_of(value, budget);
  if (auto whole = read_integer(text)) return Value::of(*whole);
  const std::optional<double> real = read_real(text);
  return real && std::isfinite(*real) ? truncated(*real, otherwise) : otherwise;
}

// Converts to a real. A text that is not a number becomes the default.
Value as_real(V value, A a, B budget) {
  check_number(value);
  if (value.is_number()) return Value::of(value.number());
  const std::optional<double> real = read_real(number_text_of(value, budget));
  return real ? Value::of(*real) : a.value(0, Value::of(0.0));
}

// Returns the absolute value. Refuses the smallest integer, which has no positive counterpart.
Value magnitude(V value, A, B) {
  if (value.is_real()) return Value::of(std::abs(value.number()));
  if (!value.is_number() || value.integer() == INT64_MIN)
    fault(DS_ERROR_CONFIG, "abs does not support this {}", value.kind());
  return Value::of(std::abs(value.integer()));
}

// Only rounding by "common", to 0 to 15 decimals and of numbers up to 1e15, is supported.
Value rounded(V value, A a, B) {
  int64_t digits = a.integer(0, 0);
  std::string method = a.text(1, "common");
  if (!value.is_number()) fault(DS_ERROR_CONFIG, "round needs a number, got a {}", value.kind());
  if (method != "common" || digits < 0 || digits > 15 || std::abs(value.number()) > 1e15) {
    fault(DS_ERROR_UNSUPPORTED, "round of {} to {} digits by '{}' is unsupported", value.number(),
          digits, method);
  }
  // Python rounds the exact binary value, and so does fmt.
  std::string text = fmt::format("{:.{}f}", value.number(), digits);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return value.is_real() ? Value::of(out) : Value::of(value.integer());
}

// Follows Jinja's do_indent.
Value indented(V value, A a, B budget) {
  require_defined(value);
  if (!value.is_text()) fault(DS_ERROR_CONFIG, "indent needs a str, got a {}", value.kind());
  std::string indent = "    ";
  if (a.has(0)) {
    if (!a.at(0).is_text())
      budget.memory(static_cast<size_t>(std::max<int64_t>(a.integer(0, 0), 0)));
    indent = a.at(0).is_text()
                 ? a.text(0)
                 : std::string(static_cast<size_t>(std::max<int64_t>(a.integer(0, 0), 0)), ' ');
  }
  bool first = a.flag(1, false), blank = a.flag(2, false);
  std::string text = value.str(budget);
  // split_lines() may create a std::string for each byte.
  budget.memory(text.size() * 32);
  std::vector<std::string> lines = split_lines(text + "\n");
  budget.memory(text.size() + lines.size() * (indent.size() + 1));
  std::string out = first ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 && (blank || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return Value::paid(std::move(out));
}

// Arguments of other types are shown as texts first, as Jinja's filter does.
Value text_replaced(V value, A a, B budget) {
  const auto text_of = [&](V one) {
    return one.is_text() ? one : Value::of(one.str(budget), budget);
  };
  const Value text = text_of(value);
  Values arguments{text_of(a.at(0)), text_of(a.at(1))};
  if (a.has(2) && !a.at(2).is_none()) arguments.push_back(a.at(2));
  return call_method(text, "replace", {std::move(arguments), {}}, budget);
}

// Names and parameters are those of Jinja, so that named arguments work.
const std::vector<Filter>& filters() {
  static const auto& all = *new std::vector<Filter>{
      {"trim", {"chars"}, trim},
      {"length", {}, count},
      {"count", {}, count},
      {"default", {"default_value", "boolean"}, otherwise},
      {"d", {"default_value", "boolean"}, otherwise},
      {"join", {"d", "attribute"}, text_joined},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, json},
      {"upper", {}, [](V v, A, B b) { return Value::of(upper(v.str(b)), b); }},
      {"lower", {}, [](V v, A, B b) { return Value::of(lower(v.str(b)), b); }},
      {"capitalize", {}, [](V v, A, B b) { return Value::of(capitalize(v.str(b)), b); }},
      {"first", {}, first},
      {"last", {}, last},
      {"list", {}, [](V v, A, B b) { return Value::list(iterate(v, b)); }},
      {"reverse", {}, reversed},
      {"items", {}, members},
      {"string", {}, [](V v, A, B b) { return v.is_text() ? v : Value::of(v.str(b), b); }},
      {"int", {"default"}, as_integer},
      {"float", {"default"}, as_real},
      {"abs", {}, magnitude},
      {"round", {"precision", "method"}, rounded},
      {"indent", {"width", "first", "blank"}, indented},
      {"replace", {"old", "new", "count"}, text_replaced},
  };
  return all;
}

const Filter* filter_named(std::string_view name) {
  auto at = std::find_if(filters().begin(), filters().end(),
                         [&](const Filter& one) { return one.name == name; });
  return at == filters().end() ? nullptr : &*at;
}

}  // namespace

bool is_filter(std::string_view name) {
  return filter_named(name) != nullptr || is_item_filter(name);
}

// Pays for the size of the value before the filter runs.
Value apply_filter(std::string_view name, const Value& value, Arguments arguments, Budget& budget) {
  budget.work(value.is_text() ? value.text().size() / 32 + 1 : 1);
  if (is_item_filter(name)) return apply_item_filter(name, value, arguments, budget, apply_filter);
  const Filter* filter = filter_named(name);
  if (!filter) fault(DS_ERROR_UNSUPPORTED, "filter '{}' is unsupported", name);
  arguments.expect(std::string(name), filter->parameters);
  return filter->run(value, arguments, budget);
}

}  // namespace ds::text::jinja
