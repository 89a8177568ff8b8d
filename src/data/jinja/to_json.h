#pragma once
#include <string>

#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// The parameters of Python's json.dumps. indent below 0: one line.
struct JsonStyle {
  std::string indent;
  bool lines = false, ensure_ascii = false, sort_keys = false;
  std::string comma = ", ", colon = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace ds::jinja
