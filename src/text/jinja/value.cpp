// Values, with truth, equality, order and texts as in Python.
//
// Comparisons and texts of nested values recurse; their depth is bounded when a value is created
// (deeper()), and each level costs a step. Generators are the exception to immutability: they
// remember that they have been read.
#include "text/jinja/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/utf8.h"
#include "text/jinja/numbers.h"
#include "text/jinja/python_text.h"

namespace ds::text::jinja {
namespace {

// Returns one level more than the deepest item; refuses levels beyond kDeepest.
int deeper(int depth) {
  if (depth >= kDeepest) fault(DS_ERROR_UNSUPPORTED, "values are nested deeper than {}", kDeepest);
  return depth + 1;
}

Dict dict_of(std::vector<std::pair<std::string, Value>> items) {
  Dict out;
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max(depth, value.depth());
  out.depth = deeper(depth);
  out.items = std::move(items);
  return out;
}

int deepest(const Values& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return deeper(depth);
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name == key) return &value;
  }
  return nullptr;
}

Value Value::list(Values items, bool tuple) {
  const int depth = deepest(items);
  return Value(std::make_shared<List>(List{std::move(items), tuple, depth}));
}

Value Value::series(Series::Kind kind, Values items) {
  const int depth = deepest(items);
  return Value(std::make_shared<Series>(Series{std::move(items), kind, depth}));
}

Value Value::generator(Values items, std::optional<Fault> end) {
  Value out = series(Series::Kind::generator, std::move(items));
  out.series().end = std::move(end);
  return out;
}

Value Value::dict(std::vector<std::pair<std::string, Value>> items) {
  return Value(std::make_shared<Dict>(dict_of(std::move(items))));
}

Value Value::space(std::vector<std::pair<std::string, Value>> items) {
  Dict out = dict_of(std::move(items));
  out.space = true;
  return Value(std::make_shared<Dict>(std::move(out)));
}

// Counts the depth on the way down, since a list can count its depth only once its items exist.
Value Value::from_json(const Json& json, Budget& budget, int depth) {
  if (depth > kDeepest) fault(DS_ERROR_UNSUPPORTED, "values are nested deeper than {}", kDeepest);
  budget.work(1);
  if (json.is_null()) return none();
  if (json.is_bool()) return of(json.boolean());
  if (json.is_integer()) return of(json.integer());
  if (json.is_infinity()) return of(json.is_negative_infinity() ? -HUGE_VAL : HUGE_VAL);
  if (json.is_nan()) return of(std::nan(""));
  if (json.is_number()) return of(json.number());
  if (json.is_string()) return of(json.string(), budget);
  if (json.is_array()) {
    budget.memory(json.array().size() * sizeof(Value));
    Values items;
    items.reserve(json.array().size());
    for (const Json& one : json.array()) items.push_back(from_json(one, budget, depth + 1));
    return list(std::move(items));
  }
  std::vector<std::pair<std::string, Value>> items;
  for (const auto& [key, one] : json.object()) {
    budget.memory(key.size() + sizeof(Value) + sizeof(std::string));
    items.emplace_back(key, from_json(one, budget, depth + 1));
  }
  return dict(std::move(items));
}

bool Value::is_dict() const {
  const auto* found = std::get_if<std::shared_ptr<Dict>>(&value_);
  return found && !(*found)->space;
}

bool Value::is_space() const {
  const auto* found = std::get_if<std::shared_ptr<Dict>>(&value_);
  return found && (*found)->space;
}

const std::string& Value::name() const {
  static const std::string none;
  const auto& name = std::get<Undefined>(value_).name;
  return name ? *name : none;
}

int64_t Value::integer() const {
  return is_bool() ? int64_t{std::get<bool>(value_)} : std::get<int64_t>(value_);
}

double Value::number() const {
  return is_real() ? std::get<double>(value_) : static_cast<double>(integer());
}

int Value::depth() const {
  if (is_list()) return items().depth;
  if (is_series()) return series().depth;
  if (is_dict() || is_space()) return members().depth;
  return 0;
}

// As in Python, empty values and zeros are false; a generator is true without being read.
bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_real()) return number() != 0;
  if (is_number()) return integer() != 0;
  if (is_text()) return !text().empty();
  if (is_list()) return !items().items.empty();
  if (is_series()) return series().kind == Series::Kind::generator || !series().items.empty();
  if (is_dict()) return !members().items.empty();
  return true;
}

// The names follow the order of the variant.
const char* Value::kind() const {
  static constexpr const char* kNames[] = {"undefined", "none", "bool",     "int",
                                           "float",     "str",  "list",     "series",
                                           "dict",      "loop", "function", "macro"};
  static constexpr const char* kSeries[] = {"generator", "range", "dict_items", "dict_keys",
                                            "dict_values"};
  if (is_series()) return kSeries[static_cast<size_t>(series().kind)];
  if (is_list() && items().tuple) return "tuple";
  if (is_space()) return "namespace";
  return kNames[value_.index()];
}

// Returns the shortest digits that read back as the same number, as Python's repr does. A whole
// number keeps ".0".
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

std::string Value::str(Budget& budget) const {
  if (is_text()) return text();
  if (is_undefined()) return "";
  return repr(budget);
}

// Values without a defined text in Python, such as functions, are refused.
std::string Value::repr(Budget& budget) const {
  budget.work(1);
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return integer() != 0 ? "True" : "False";
  if (is_int()) return fmt::format("{}", integer());
  if (is_real()) return real_text(number());
  const bool view = is_series() && series().kind >= Series::Kind::dict_items;
  if (!is_text() && !is_list() && !view && !is_dict())
    fault(DS_ERROR_UNSUPPORTED, "a {} cannot be shown", kind());
  std::string out;
  if (is_text()) {
    out = repr_text(text());
  } else if (view) {
    out = std::string(kind()) + "(" + list(series().items).repr(budget) + ")";
  } else if (is_list()) {
    const List& list = items();
    for (const Value& one : list.items) out += (out.empty() ? "" : ", ") + one.repr(budget);
    if (list.tuple && list.items.size() == 1) out += ",";
    out = (list.tuple ? "(" : "[") + out + (list.tuple ? ")" : "]");
  } else {
    for (const auto& [key, one] : members().items) {
      out += (out.empty() ? "" : ", ") + repr_text(key) + ": " + one.repr(budget);
    }
    out = "{" + out + "}";
  }
  budget.memory(out.size());
  return out;
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fault(DS_ERROR_CONFIG, "'{}' is undefined", value.name());
}

std::partial_ordering number_order(const Value& a, const Value& b) {
  if (a.is_real() && b.is_real()) return a.number() <=> b.number();
  if (a.is_real()) return 0 <=> exact_order(b.integer(), a.number());
  if (b.is_real()) return exact_order(a.integer(), b.number());
  return a.integer() <=> b.integer();
}

// Different kinds are unequal, except numbers, which compare by value.
bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.work(1);
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_number() && b.is_number()) return number_order(a, b) == 0;
  if (a.is_text() && b.is_text()) {
    budget.work(a.text().size() / 64);
    return a.text() == b.text();
  }
  if (a.is_list() && b.is_list()) {
    const List &x = a.items(), &y = b.items();
    if (x.tuple != y.tuple || x.items.size() != y.items.size()) return false;
    for (size_t i = 0; i < x.items.size(); ++i) {
      if (!equal(x.items[i], y.items[i], budget)) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    const Dict &x = a.members(), &y = b.members();
    if (x.items.size() != y.items.size()) return false;
    for (const auto& [key, value] : x.items) {
      budget.work(y.items.size() / 8);
      const Value* other = y.find(key);
      if (!other || !equal(value, *other, budget)) return false;
    }
    return true;
  }
  // Python compares ranges by items, generators by identity.
  if (a.is_series() && b.is_series() && &a.series() != &b.series()) {
    if (a.is_series(Series::Kind::generator) || a.series().kind != b.series().kind) return false;
    if (!a.is_series(Series::Kind::range))
      fault(DS_ERROR_UNSUPPORTED, "'==' of a {} and a {} is unsupported", a.kind(), b.kind());
    return equal(Value::list(a.series().items), Value::list(b.series().items), budget);
  }
  return (a.is_series() && b.is_series()) ||
         (a.is_space() && b.is_space() && &a.members() == &b.members()) ||
         (a.is_macro() && b.is_macro() && &a.macro() == &b.macro()) ||
         (a.is_function() && b.is_function() && a.function().name == b.function().name);
}

// Views of keys and items are sets, which Python refuses as keys; a view of values is an object
// like any other.
bool hashable(const Value& value) {
  if (value.is_series(Series::Kind::dict_items) || value.is_series(Series::Kind::dict_keys))
    return false;
  if (!value.is_list()) return !value.is_dict();
  const List& list = value.items();
  return list.tuple && std::ranges::all_of(list.items, hashable);
}

// Lists and tuples compare item by item, as in Python.
bool less(const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) return number_order(a, b) < 0;
  if (a.is_list() && b.is_list() && a.items().tuple == b.items().tuple) {
    const Values &x = a.items().items, &y = b.items().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget);
    }
    return x.size() < y.size();
  }
  if (!a.is_text() || !b.is_text()) {
    fault(DS_ERROR_CONFIG, "a {} and a {} have no order", a.kind(), b.kind());
  }
  budget.work(a.text().size() / 64);
  // UTF-8 sorts like code points.
  return a.text() < b.text();
}

namespace {

// A generator is read at most once; a second reading is reported instead of finding nothing.
const Values& read(Series& series) {
  if (series.read) {
    fault(DS_ERROR_UNSUPPORTED,
          "the result of a filter such as selectattr is read a second time, but it can be read "
          "once only; put '| list' after the filter");
  }
  series.read = series.kind == Series::Kind::generator;
  return series.items;
}

}  // namespace

void tell(const std::optional<Fault>& end) {
  if (end) throw Fault(*end);
}

// An undefined value has no items, as in Jinja. A generator is treated as read from here on, even
// if the caller stops early.
Given give(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  std::optional<Fault> end;
  Values out;
  if (value.is_list()) {
    out = value.items().items;
  } else if (value.is_series()) {
    out = read(value.series());
    end = value.series().end;
  } else if (value.is_dict()) {
    for (const auto& [key, one] : value.members().items) out.push_back(Value::of(key, budget));
  } else if (value.is_text()) {
    std::string_view text = value.text();
    budget.memory(text.size() * (sizeof(Value) + sizeof(std::string)));
    while (!text.empty()) {
      size_t length = std::max<size_t>(utf8_sequence(text), 1);
      out.push_back(Value::paid(std::string(text.substr(0, length))));
      text.remove_prefix(length);
    }
  } else {
    fault(DS_ERROR_CONFIG, "a {} cannot be iterated", value.kind());
  }
  budget.work(out.size() / 4);
  budget.memory(out.size() * sizeof(Value));
  return {std::move(out), std::move(end)};
}

// Reads all items, so a fault after them is reported.
Values iterate(const Value& value, Budget& budget) {
  Given all = give(value, budget);
  tell(all.end);
  return std::move(all.items);
}

// A text contains texts, a dictionary keys, anything else items.
bool contains(const Value& all, const Value& one, Budget& budget) {
  if (all.is_text()) {
    if (!one.is_text()) fault(DS_ERROR_CONFIG, "'in' of a str needs a str, got a {}", one.kind());
    // find_text is linear, so the charge is proportional to the text.
    budget.work(all.text().size() / 64 + 1);
    return find_text(all.text(), one.text()) != std::string::npos;
  }
  if (all.is_dict()) {
    budget.work(all.members().items.size() / 8 + 1);
    if (!hashable(one)) fault(DS_ERROR_CONFIG, "a {} cannot be a key of a dict", one.kind());
    return one.is_text() && all.members().find(one.text()) != nullptr;
  }
  if (all.is_undefined()) return false;
  if (!all.is_list() && !all.is_series()) fault(DS_ERROR_CONFIG, "a {} has no 'in'", all.kind());
  if (all.is_series(Series::Kind::dict_keys) && !hashable(one))
    fault(DS_ERROR_CONFIG, "a {} cannot be a key of a dict", one.kind());
  for (const Value& item : all.is_list() ? all.items().items : read(all.series())) {
    if (equal(item, one, budget)) return true;
  }
  if (all.is_series()) tell(all.series().end);
  return false;
}

}  // namespace ds::text::jinja
