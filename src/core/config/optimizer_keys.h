#pragma once
#include <vector>

#include "core/config/schema.h"

namespace ds {

// The rows of section optimizer.
void optimizer_keys(std::vector<Key>& keys);

}  // namespace ds
