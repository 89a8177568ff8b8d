#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// The DeepSpeed configuration that Accelerate makes of its own file, given as the document of that.
// Throws DS_ERROR_CONFIG naming the key: for a file without a section deepspeed_config, one that
// names another file instead, and keys that ask for what libds lacks. What says where and how
// processes start has no effect: `libds launch` is told that on its own command line.
Json accelerate_config(const Json& document, std::string_view source);

}  // namespace ds
