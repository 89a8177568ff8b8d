#pragma once
#include "checkpoint/gguf/rope_keys.h"
#include "core/base/json.h"
#include "io/gguf.h"

namespace ds {

// Returns the keys for a config.json. Throws DS_ERROR_UNSUPPORTED, naming key and value, for an
// option that the format cannot express or that llama.cpp does not compute. Logs a warning for
// sliding windows that llama.cpp ignores.
GgufModelKeys gguf_model_keys(const Json& config);

// Returns the config.json of the model in a GGUF file.
Json gguf_config(const GgufHeader& header, const ReadFactors& read);

}  // namespace ds
