#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// Whether a text looks like YAML: its first line that says something is "---", "%YAML", "- ..." or
// "key:
// ...".
bool looks_like_yaml(std::string_view text);

// The part of YAML that configurations are written in, by PyYAML among others: maps in blocks,
// lists of scalars below their key, scalars on one line, plain or in quotes, and comments. Scalars
// have the types of YAML 1.1 as PyYAML reads them (yes, no, on and off are booleans; 1e-5 without a
// dot is a text). Throws DS_ERROR_CONFIG, naming source and line, for all else: anchors, tags, flow
// collections other than {} and
// [], block scalars, several documents.
Json parse_block_yaml(std::string_view text, std::string_view source);

}  // namespace ds
