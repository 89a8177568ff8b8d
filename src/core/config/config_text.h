#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// A configuration as people have it: JSON with comments, and with hjson's comments from '#' to the
// end of the line and commas before a closing bracket; or the YAML file of `accelerate config` with
// a section deepspeed_config, of which the DeepSpeed configuration is made that Accelerate makes of
// it. Throws DS_ERROR_CONFIG naming source and place; a text that is something else is named for
// what it is.
Json parse_config_text(std::string_view text, std::string_view source);

}  // namespace ds
