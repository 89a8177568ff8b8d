#pragma once
#include <vector>

#include "core/config/config.h"
#include "core/config/schema.h"

namespace ds {

// The keys of data_efficiency that libds acts on: dynamic batching.
void data_efficiency_keys(std::vector<Key>& keys);
// Dynamic batching is on where all sections around it are, too. What it needs of other keys; throws
// DS_ERROR_CONFIG.
void complete_data_efficiency(Config& config);

}  // namespace ds
