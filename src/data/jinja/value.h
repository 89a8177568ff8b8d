#pragma once
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
#include "data/jinja/fault.h"

namespace ds::jinja {

// Values in values, and parentheses in expressions: so deep recursion stays far from the end of a
// stack.
inline constexpr int kDeepest = 100;

class Value;
using Values = std::vector<Value>;

// A list or a tuple.
struct List {
  Values items;
  bool tuple = false;
  int depth = 1;
};

// What Python makes items from and is neither list nor tuple. A generator is true, has no length,
// and gives its items once: what filters such as selectattr and map make. What goes wrong in making
// an item is told to who reads that far, and to nobody if nobody does.
struct Series {
  enum class Kind { generator, range, dict_items, dict_keys, dict_values };
  Values items;
  Kind kind = Kind::generator;
  int depth = 1;
  bool read = false;           // a generator: its items have been given
  std::optional<Fault> end{};  // what a reader finds behind the items
};

struct Dict;
struct Loop;
struct Macro;

// A name that has no value. What Jinja calls Undefined: it prints as nothing, is false and empty,
// and any other use of it is an error that tells its name.
struct Undefined {
  std::shared_ptr<const std::string> name;
};

// A function that templates find by name, such as range.
struct Function {
  std::string_view name;  // of a static text
};

// A value of Python as far as templates see it. Copies share texts, lists and dictionaries, which
// do not change after they were made, except the attributes of a namespace.
class Value {
 public:
  using Text = std::shared_ptr<const std::string>;

  Value() : value_(Undefined{}) {}
  static Value undefined(std::string name, Budget& budget) {
    budget.memory(name.size());
    return Value(Undefined{std::make_shared<const std::string>(std::move(name))});
  }
  static Value none() { return Value(nullptr); }
  static Value of(bool value) { return Value(value); }
  static Value of(int64_t value) { return Value(value); }
  static Value of(double value) { return Value(value); }
  // A text pays for its bytes, whoever makes it; paid: they were paid before it was made, or are
  // the template's.
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
  // Throw Fault when the items are nested deeper than kDeepest.
  static Value list(Values items, bool tuple = false);
  static Value series(Series::Kind kind, Values items);
  static Value generator(Values items, std::optional<Fault> end = {});
  static Value dict(std::vector<std::pair<std::string, Value>> items);
  static Value space(std::vector<std::pair<std::string, Value>> items);  // a namespace
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
  bool is_dict() const;   // no namespace
  bool is_space() const;  // a namespace
  bool is_loop() const { return std::holds_alternative<std::shared_ptr<Loop>>(value_); }
  bool is_function() const { return std::holds_alternative<Function>(value_); }
  bool is_macro() const { return std::holds_alternative<const Macro*>(value_); }

  const std::string& name() const;  // of an undefined value, "" when it has none
  const std::string& text() const { return *std::get<Text>(value_); }
  const List& items() const { return *std::get<std::shared_ptr<List>>(value_); }
  Series& series() const { return *std::get<std::shared_ptr<Series>>(value_); }
  const Dict& members() const { return *std::get<std::shared_ptr<Dict>>(value_); }
  Dict& members() { return *std::get<std::shared_ptr<Dict>>(value_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(value_); }
  const Macro& macro() const { return *std::get<const Macro*>(value_); }
  Function function() const { return std::get<Function>(value_); }
  int64_t integer() const;  // of a boolean or an integer
  double number() const;    // of any number
  int depth() const;        // of a list, series or dictionary: how deep values are in values

  bool truth() const;
  const char* kind() const;                // Python's name of the type
  std::string str(Budget& budget) const;   // as {{ }} shows it
  std::string repr(Budget& budget) const;  // as inside a list that is shown

 private:
  using Any = std::variant<Undefined, std::nullptr_t, bool, int64_t, double, Text,
                           std::shared_ptr<List>, std::shared_ptr<Series>, std::shared_ptr<Dict>,
                           std::shared_ptr<Loop>, Function, const Macro*>;
  explicit Value(Any value) : value_(std::move(value)) {}

  Any value_;
};

// Keys are texts, in the order in which they were put in.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  bool space = false;
  int depth = 1;

  const Value* find(std::string_view key) const;
};

// `loop` inside a for.
struct Loop {
  std::shared_ptr<const Values> items;
  int64_t at = 0, depth = 1;
};

// Throws Fault with the name of an undefined value.
void require_defined(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
// Whether a dict could have it as a key: no list or dict, nor a tuple with one in it.
bool hashable(const Value& value);
bool less(const Value& a, const Value& b,
          Budget& budget);  // throws Fault where Python has no order
// Items that a for loop goes through: those of a list or series, keys, characters, none of an
// undefined value. Refuses a generator that has been read: Python would find nothing left, which no
// template means.
Values iterate(const Value& value, Budget& budget);
// The same for a reader that may stop before the last item, and hears of `end` if it does not.
struct Given {
  Values items;
  std::optional<Fault> end;
};
void tell(const std::optional<Fault>& end);  // throws it, if there is one
Given give(const Value& value, Budget& budget);
bool contains(const Value& all, const Value& one, Budget& budget);
// A float as Python writes it, with a point or an exponent.
std::string real_text(double value);

}  // namespace ds::jinja
