#pragma once
#include "core/config/config.h"

namespace ds {

// Refuse a shard group, or a number of nodes, that does not divide this number of ranks.
// DS_ERROR_CONFIG names the key.
void check_shard_group(const ZeroConfig& zero, int ranks);
void check_nodes(const Config& config, int ranks);

// Both; what they refuse is kept.
void check_rank_counts(const Config& config, int ranks, ConfigRefusals& refusals);

}  // namespace ds
