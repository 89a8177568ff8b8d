#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ds {

// A JSON document. Object members keep their order, and integers stay exact over the whole int64
// range. The parser accepts // and /* */ comments and refuses duplicate keys; errors name line and
// column. `Infinity` and `NaN`, which Python writes, are kinds of their own and not numbers, so
// only a reader that checks for them accepts them; NaN is accepted in data only (json_data.h).
class Json {
  enum class NotFinite { infinity, negative_infinity, nan };

 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  // Constructs null.
  Json() = default;
  Json(bool b) : value_(b) {}                      // NOLINT
  Json(int i) : value_(int64_t{i}) {}              // NOLINT
  Json(int64_t i) : value_(i) {}                   // NOLINT
  Json(double d) : value_(d) {}                    // NOLINT
  Json(const char* s) : value_(std::string(s)) {}  // NOLINT
  Json(std::string s) : value_(std::move(s)) {}    // NOLINT
  Json(Array a) : value_(std::move(a)) {}          // NOLINT
  Json(Object o) : value_(std::move(o)) {}         // NOLINT

  static Json infinity(bool negative = false) {
    return Json(negative ? NotFinite::negative_infinity : NotFinite::infinity);
  }
  static Json nan() { return Json(NotFinite::nan); }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // Returns whether the value is infinity, of either sign.
  bool is_infinity() const { return is(NotFinite::infinity) || is_negative_infinity(); }
  bool is_negative_infinity() const { return is(NotFinite::negative_infinity); }
  bool is_nan() const { return is(NotFinite::nan); }
  // Returns "null", "boolean", "integer", "number", "string", "array", "object", "infinite number"
  // or "NaN".
  const char* kind() const;

  // Typed access. These functions throw DS_ERROR_CONFIG, naming the expected and the actual kind,
  // if the value is of another kind.
  bool boolean() const;
  // Returns an integer; also accepts a real with an integral value, such as 5e8.
  int64_t integer() const;
  double number() const;
  const std::string& string() const;
  const Array& array() const;
  const Object& object() const;
  Array& array();
  Object& object();

  // Returns the member of an object, or null if it is absent.
  const Json* find(std::string_view key) const;
  // Throws DS_ERROR_CONFIG if the key is absent.
  const Json& at(std::string_view key) const;
  // Sets a member, replacing an equal key. A null value becomes an object first.
  void set(std::string_view key, Json value);

  // Returns the document as text, in one line at indent 0. Finite doubles parse back to the same
  // bits; others become null.
  std::string dump(int indent = 0) const;
  // Parses a document. Throws DS_ERROR_CONFIG with `source`, line and column for malformed text.
  static Json parse(std::string_view text, std::string_view source = "json");

 private:
  explicit Json(NotFinite value) : value_(value) {}
  bool is(NotFinite wanted) const {
    const auto* value = std::get_if<NotFinite>(&value_);
    return value && *value == wanted;
  }

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object, NotFinite> value_;
};

}  // namespace ds
