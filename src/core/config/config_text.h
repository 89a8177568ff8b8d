#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// Parses a configuration in any form that people use: JSON; JSON with comments (including hjson's,
// from '#' to the end of the line) and with commas before a closing bracket; or the YAML file of
// `accelerate config` with a section deepspeed_config (accelerate_config()). Throws DS_ERROR_CONFIG
// naming source and place. If the text is another kind of file, the message names that kind.
Json parse_config_text(std::string_view text, std::string_view source);

}  // namespace ds
