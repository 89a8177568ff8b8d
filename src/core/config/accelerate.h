#pragma once
#include <string_view>

#include "core/base/json.h"

namespace ds {

// Returns the DeepSpeed configuration that Accelerate generates from its own file. `document` is
// that file, `source` its name in messages. Throws DS_ERROR_CONFIG naming the key if the file has
// no section deepspeed_config, if that section names another file, if Accelerate does not know a
// key, or if libds does not support the precision. Keys that say where and how processes start have
// no effect, because `libds launch` has options for that.
Json accelerate_config(const Json& document, std::string_view source);

}  // namespace ds
