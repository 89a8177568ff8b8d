#pragma once
#include "core/config/config.h"

namespace ds {

// Throws DS_ERROR_CONFIG, naming the keys, for sizes of a built-in model whose products are beyond
// any machine or could overflow 64-bit offsets. The batch and the model must be complete.
void check_sizes(const Config& config);

}  // namespace ds
