#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/json.h"
#include "text/jinja/fault.h"

namespace ds::text::jinja {

// Bounds the nesting of values and of parentheses in expressions, so that recursion stays far from
// the end of a stack.
inline constexpr int kDeepest = 100;

class Value;
using Values = std::vector<Value>;

// A list or a tuple.
struct List {
  Values items;
  bool tuple = false;
  int depth = 1;
};

// An iterable of Python that is neither list nor tuple. A generator, which filters such as
// selectattr and map return, is true, has no length, and can be read once. As in Python, an error
// in computing an item is reported only to a reader that gets that far.
struct Series {
  enum class Kind { generator, range, dict_items, dict_keys, dict_values };
  Values items;
  Kind kind = Kind::generator;
  int depth = 1;
  // For a generator: whether its items have been read.
  bool read = false;
  // The error that is reported after the items.
  std::optional<Fault> end{};
};

struct Dict;
struct Loop;
struct Macro;

// A name that has no value: Jinja's Undefined. It prints as nothing, is false and has no items.
// Reading a member of it or calling it is an error that names it.
struct Undefined {
  std::shared_ptr<const std::string> name;
};

// A function that templates can call by name, such as range.
struct Function {
  // A view of a static text.
  std::string_view name;
};

// A Python value as far as templates can see it. Copies share texts, lists and dictionaries, which
// never change once they are created, except the attributes of a namespace.
class Value {
 public:
  using Text = std::shared_ptr<const std::string>;

  Value() : value_(Undefined{}) {}
  // Returns an undefined value; the name is for messages.
  static Value undefined(std::string name, Budget& budget) {
    budget.memory(name.size());
    return Value(Undefined{std::make_shared<const std::string>(std::move(name))});
  }
  static Value none() { return Value(nullptr); }
  static Value of(bool value) { return Value(value); }
  static Value of(int64_t value) { return Value(value); }
  static Value of(double value) { return Value(value); }
  // of() pays for the bytes of a text. paid() is for a text whose bytes were paid before or belong
  // to the template.
  static Value of(std::string text, Budget& budget) {
    budget.memory(text.size());
    return paid(std::move(text));
  }
  static Value paid(std::string text) {
    return Value(std::make_shared<const std::string>(std::move(text)));
  }
  static Value of(Function value) { return Value(value); }
  static Value of(std::shared_ptr<Loop> value) { return Value(std::move(value)); }
  static Value of(const Macro* value) { return Value(value); }
  // These functions throw Fault if the items are nested deeper than kDeepest.
  static Value list(Values items, bool tuple = false);
  static Value series(Series::Kind kind, Values items);
  static Value generator(Values items, std::optional<Fault> end = {});
  static Value dict(std::vector<std::pair<std::string, Value>> items);
  // Returns a namespace.
  static Value space(std::vector<std::pair<std::string, Value>> items);
  // Throws Fault if the JSON is nested deeper than kDeepest.
  static Value from_json(const Json& json, Budget& budget, int depth = 0);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_real() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_bool() || is_int() || is_real(); }
  bool is_text() const { return std::holds_alternative<Text>(value_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(value_); }
  bool is_series() const { return std::holds_alternative<std::shared_ptr<Series>>(value_); }
  bool is_series(Series::Kind kind) const { return is_series() && series().kind == kind; }
  // Returns false for a namespace.
  bool is_dict() const;
  // Returns true for a namespace only.
  bool is_space() const;
  bool is_loop() const { return std::holds_alternative<std::shared_ptr<Loop>>(value_); }
  bool is_function() const { return std::holds_alternative<Function>(value_); }
  bool is_macro() const { return std::holds_alternative<const Macro*>(value_); }

  // Returns the name of an undefined value, or "".
  const std::string& name() const;
  const std::string& text() const { return *std::get<Text>(value_); }
  const List& items() const { return *std::get<std::shared_ptr<List>>(value_); }
  Series& series() const { return *std::get<std::shared_ptr<Series>>(value_); }
  const Dict& members() const { return *std::get<std::shared_ptr<Dict>>(value_); }
  Dict& members() { return *std::get<std::shared_ptr<Dict>>(value_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(value_); }
  const Macro& macro() const { return *std::get<const Macro*>(value_); }
  Function function() const { return std::get<Function>(value_); }
  // The value must be a boolean or an integer.
  int64_t integer() const;
  // The value must be a boolean, an integer or a float.
  double number() const;
  // Returns how deeply values are nested in a list, series or dictionary; 0 for any other value.
  int depth() const;

  // Returns Python's bool() of the value.
  bool truth() const;
  // Returns Python's name of the type.
  const char* kind() const;
  // Returns the text that {{ }} prints.
  std::string str(Budget& budget) const;
  // Returns the text that a list prints for the value.
  std::string repr(Budget& budget) const;

 private:
  using Any = std::variant<Undefined, std::nullptr_t, bool, int64_t, double, Text,
                           std::shared_ptr<List>, std::shared_ptr<Series>, std::shared_ptr<Dict>,
                           std::shared_ptr<Loop>, Function, const Macro*>;
  explicit Value(Any value) : value_(std::move(value)) {}

  Any value_;
};

// A dictionary or, if `space` is set, a namespace. Its keys are texts, in the order of insertion.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  bool space = false;
  int depth = 1;

  const Value* find(std::string_view key) const;
};

// The variable `loop` inside a for.
struct Loop {
  std::shared_ptr<const Values> items;
  int64_t at = 0, depth = 1;
};

// Throws a Fault that names the value if it is undefined.
void require_defined(const Value& value);
// Returns the exact order of two numbers, which is `unordered` if one of them is NaN.
std::partial_ordering number_order(const Value& a, const Value& b);
// Returns Python's a == b.
bool equal(const Value& a, const Value& b, Budget& budget);
// Returns whether a value can be a key of a dict: it is not a list, a dict, a view of keys or
// items, or a tuple that contains one of these.
bool hashable(const Value& value);
// Throws Fault for values that have no order in Python.
bool less(const Value& a, const Value& b, Budget& budget);
// Returns the items over which a for loop runs: those of a list or series, the keys of a
// dictionary, the characters of a text, nothing for an undefined value. Refuses a generator that
// has been read before: Python would find it empty, which no template intends.
Values iterate(const Value& value, Budget& budget);
// Items for a reader that may stop early. The reader reports `end` only if it reads past the last
// item.
struct Given {
  Values items;
  std::optional<Fault> end;
};
// Throws the fault, if there is one.
void tell(const std::optional<Fault>& end);
// Returns the items of iterate(), with a fault after them in `end` instead of throwing it.
Given give(const Value& value, Budget& budget);
// Returns Python's `one in all`.
bool contains(const Value& all, const Value& one, Budget& budget);
// Returns a float as Python writes it, with a point or an exponent.
std::string real_text(double value);

}  // namespace ds::text::jinja
