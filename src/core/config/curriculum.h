#pragma once
#include <vector>

#include "core/config/config.h"
#include "core/config/schema.h"

namespace ds {

// The keys of curriculum_learning.
void curriculum_keys(std::vector<Key>& keys);
// What they need of each other and of run.sequence; throws DS_ERROR_CONFIG.
void check_curriculum(const Config& config);

}  // namespace ds
