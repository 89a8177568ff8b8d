#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja/value.h"

namespace ds::jinja {

// The arguments of a call, as Python binds them: by place or by name.
class Arguments {
 public:
  Arguments() = default;
  Arguments(Values placed, std::vector<std::pair<std::string, Value>> named)
      : placed_(std::move(placed)), named_(std::move(named)) {}

  // The parameters that the callee has, in order; throws Fault for an argument too many or of
  // another name.
  void expect(std::string callee, std::vector<std::string_view> parameters);
  bool has(size_t parameter) const { return find(parameter) != nullptr; }
  // The argument of a parameter, which must be given unless a default is.
  const Value& at(size_t parameter) const;
  Value value(size_t parameter, Value otherwise) const;
  int64_t integer(size_t parameter, int64_t otherwise) const;
  bool flag(size_t parameter, bool otherwise) const;
  const std::string& text(size_t parameter) const;
  std::string text(size_t parameter, std::string otherwise) const;

  const Values& placed() const { return placed_; }
  const std::vector<std::pair<std::string, Value>>& named() const { return named_; }
  Arguments without_first() const { return {Values(placed_.begin() + 1, placed_.end()), named_}; }

 private:
  const Value* find(size_t parameter) const;

  Values placed_;
  std::vector<std::pair<std::string, Value>> named_;
  std::string callee_;
  std::vector<std::string_view> parameters_;
};

}  // namespace ds::jinja
