#pragma once
#include <string_view>

#include "data/jinja/ast.h"

namespace ds::jinja {

// A template as a tree. `generation`: whether it marks answers by {% generation %}.
struct Tree {
  Block body;
  bool generation = false;
};

// Throws Fault, with its line in `line`: DS_ERROR_CORRUPT for what is no template,
// DS_ERROR_UNSUPPORTED for tags, filters and tests that libds lacks, by name.
Tree parse_template(std::string_view source, int& line);

}  // namespace ds::jinja
