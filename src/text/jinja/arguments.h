#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ds::text::jinja {

// The arguments of a call, bound by position or by name as in Python.
class Arguments {
 public:
  Arguments() = default;
  Arguments(Values placed, std::vector<std::pair<std::string, Value>> named)
      : placed_(std::move(placed)), named_(std::move(named)) {}

  // Sets the callee's parameters, in order. Throws Fault for a surplus argument, an unknown name,
  // or a parameter that is given both by position and by name.
  void expect(std::string callee, std::vector<std::string_view> parameters);
  bool has(size_t parameter) const { return find(parameter) != nullptr; }
  // Returns the argument of a parameter. Throws Fault if the argument is not given.
  const Value& at(size_t parameter) const;
  // These functions return the argument, or the default if it is not given; text() without a
  // default then throws Fault. integer() and text() throw Fault for an argument of another kind.
  Value value(size_t parameter, Value otherwise) const;
  int64_t integer(size_t parameter, int64_t otherwise) const;
  bool flag(size_t parameter, bool otherwise) const;
  const std::string& text(size_t parameter) const;
  std::string text(size_t parameter, std::string otherwise) const;

  const Values& placed() const { return placed_; }
  const std::vector<std::pair<std::string, Value>>& named() const { return named_; }
  Arguments without_first() const { return {Values(placed_.begin() + 1, placed_.end()), named_}; }

 private:
  // Returns null if the argument is not given.
  const Value* find(size_t parameter) const;

  Values placed_;
  std::vector<std::pair<std::string, Value>> named_;
  std::string callee_;
  std::vector<std::string_view> parameters_;
};

}  // namespace ds::text::jinja
