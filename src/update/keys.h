#pragma once

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// Appends the keys of gradient_compression.
void compression_keys(KeyList& keys);

// Throws DS_ERROR_CONFIG if another key contradicts gradient_compression.
void check_gradient_compression(const Config& config);
// Throws DS_ERROR_CONFIG if a key contradicts a 1-bit optimizer. Does nothing for other optimizers.
void check_compressed(const Config& config);
// Adds a warning for each setting whose codes make bits depend on the number of ranks despite
// `reproducible`.
void warn_of_codes(Config& config);

}  // namespace ds
