#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// Returns whether a text looks like YAML: the first line with content is "---", "%YAML", "- ..." or
// "key: ...".
bool looks_like_yaml(std::string_view text);

// Parses the subset of YAML that configurations use and that PyYAML writes: block maps, lists of
// scalars below their key, scalars on one line, plain or quoted, and comments. The usual scalars
// have the types that PyYAML gives them by YAML 1.1: yes, no, on and off are booleans, and 1e-5
// without a dot is a string. Throws DS_ERROR_CONFIG, naming source and line, for other syntax:
// anchors, tags, flow collections other than {} and [], block scalars, several documents.
Json parse_block_yaml(std::string_view text, std::string_view source);

}  // namespace ds
