#pragma once
#include <vector>

#include "core/config/schema.h"

namespace ds {

// The rows of section scheduler.
void scheduler_keys(std::vector<Key>& keys);

}  // namespace ds
