#pragma once
#include <string_view>

#include "text/jinja/ast.h"

namespace ds::text::jinja {

// A template as a tree. `generation` is true if it marks answers by {% generation %}.
struct Tree {
  Block body;
  bool generation = false;
};

// Parses a template. Throws Fault, and `line` is then the line of the error: DS_ERROR_CORRUPT if
// the source is not a template, DS_ERROR_UNSUPPORTED, naming them, for tags, filters and tests that
// libds lacks.
Tree parse_template(std::string_view source, int& line);

}  // namespace ds::text::jinja
