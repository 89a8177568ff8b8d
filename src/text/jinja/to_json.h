#pragma once
#include <string>

#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// The parameters of Python's json.dumps. Without `lines`, everything is in one line.
struct JsonStyle {
  std::string indent;
  bool lines = false, ensure_ascii = false, sort_keys = false;
  std::string comma = ", ", colon = ": ";
};
// Returns a value as JSON. Throws Fault for a value that JSON cannot express.
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace ds::text::jinja
