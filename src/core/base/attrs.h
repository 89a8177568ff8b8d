#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ds {

// The attributes of a graph node or instruction: a short list of name = value pairs in insertion
// order. A value is an integer, a real, a string or a list of integers. Lookups are linear, as
// lists have a handful of entries.
class Attrs {
 public:
  using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Value>> items);

  // Adds a pair at the end, or replaces the value of an equal name in place.
  void set(std::string_view name, Value value);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const Value* find(std::string_view name) const;
  // Typed access. These functions throw if the name is absent or its value has another type (an
  // integer is accepted as a real).
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  // These functions return `otherwise` for an absent name and throw as above for a value of another
  // type.
  int64_t integer_or(std::string_view name, int64_t otherwise) const {
    return has(name) ? integer(name) : otherwise;
  }
  double real_or(std::string_view name, double otherwise) const {
    return has(name) ? real(name) : otherwise;
  }
  std::string_view text_or(std::string_view name, std::string_view otherwise) const {
    return has(name) ? std::string_view(text(name)) : otherwise;
  }

  bool empty() const { return items_.empty(); }
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }
  bool operator==(const Attrs&) const = default;

  // Returns the text form, for example "{eps=1e-05 heads=6 kind=\"tanh\" levels=[4,2]}", or "" if
  // there are no attributes. Reals always contain '.', 'e', "inf" or "nan", and parse back to the
  // same bits.
  std::string print() const;
  // Parses the output of print(). Throws DS_ERROR_INVALID_ARGUMENT if a text cannot be read in this
  // form.
  static Attrs parse(std::string_view text);

 private:
  std::vector<std::pair<std::string, Value>> items_;
};

}  // namespace ds
