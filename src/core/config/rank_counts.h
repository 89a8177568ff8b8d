#pragma once
#include "core/config/config.h"

namespace ds {

// Refuse a shard group, or a number of nodes, that so many ranks do not make. DS_ERROR_CONFIG names the key.
void check_shard_group(const ZeroConfig& zero, int ranks);
void check_nodes(const Config& config, int ranks);

}  // namespace ds
