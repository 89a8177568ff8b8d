#include "text/jinja/arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ds::text::jinja {

// A parameter must not be given both by position and by name.
void Arguments::expect(std::string callee, std::vector<std::string_view> parameters) {
  callee_ = std::move(callee);
  parameters_ = std::move(parameters);
  if (placed_.size() > parameters_.size()) {
    fault(DS_ERROR_CONFIG, "{} takes at most {} arguments, got {}", callee_, parameters_.size(),
          placed_.size());
  }
  for (const auto& [name, value] : named_) {
    auto known = std::ranges::find(parameters_, name);
    if (known == parameters_.end())
      fault(DS_ERROR_CONFIG, "{} has no parameter '{}'", callee_, name);
    if (known - parameters_.begin() < static_cast<std::ptrdiff_t>(placed_.size())) {
      fault(DS_ERROR_CONFIG, "{}: parameter '{}' is given twice", callee_, name);
    }
  }
}

// Positional arguments fill the first parameters; named ones may fill any.
const Value* Arguments::find(size_t parameter) const {
  if (parameter < placed_.size()) return &placed_[parameter];
  for (const auto& [name, value] : named_) {
    if (name == parameters_[parameter]) return &value;
  }
  return nullptr;
}

const Value& Arguments::at(size_t parameter) const {
  const Value* found = find(parameter);
  if (!found) fault(DS_ERROR_CONFIG, "{} needs an argument '{}'", callee_, parameters_[parameter]);
  return *found;
}

Value Arguments::value(size_t parameter, Value otherwise) const {
  const Value* found = find(parameter);
  return found ? *found : otherwise;
}

// Accepts booleans, which are integers in Python.
int64_t Arguments::integer(size_t parameter, int64_t otherwise) const {
  const Value* found = find(parameter);
  if (!found) return otherwise;
  if (!found->is_int() && !found->is_bool()) {
    fault(DS_ERROR_CONFIG, "{}: '{}' must be an int, got a {}", callee_, parameters_[parameter],
          found->kind());
  }
  return found->integer();
}

// Accepts any value and returns its truth.
bool Arguments::flag(size_t parameter, bool otherwise) const {
  const Value* found = find(parameter);
  return found ? found->truth() : otherwise;
}

const std::string& Arguments::text(size_t parameter) const {
  const Value& found = at(parameter);
  if (!found.is_text()) {
    fault(DS_ERROR_CONFIG, "{}: '{}' must be a str, got a {}", callee_, parameters_[parameter],
          found.kind());
  }
  return found.text();
}

std::string Arguments::text(size_t parameter, std::string otherwise) const {
  return has(parameter) ? text(parameter) : otherwise;
}

}  // namespace ds::text::jinja
