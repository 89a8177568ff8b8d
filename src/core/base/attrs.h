#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ds {

// Attributes of a graph node or instruction: a small ordered list of name = integer | real | string
// | integers.
class Attrs {
 public:
  using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Value>> items);

  void set(std::string_view name, Value value);  // replaces an equal name
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const Value* find(std::string_view name) const;
  // Typed access. Throw when the name is absent or of another type (an integer is accepted as a
  // real).
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  // Typed access with a default for an absent name.
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

  // "{eps=1e-05 heads=6 kind=\"tanh\" levels=[4,2]}"; "" when empty. Reals always carry '.', 'e',
  // "inf" or "nan", and parse back to the same bits.
  std::string print() const;
  static Attrs parse(std::string_view text);  // inverse of print(); throws

 private:
  std::vector<std::pair<std::string, Value>> items_;
};

}  // namespace ds
