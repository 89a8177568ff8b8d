#pragma once
#include "core/config/config.h"
#include "core/config/refusals.h"

namespace ds {

// Throw DS_ERROR_CONFIG naming the key if the size of a shard group or the number of nodes does not
// divide the number of ranks, or if a shard group has a size that libds does not support.
void check_shard_group(const ZeroConfig& zero, int ranks);
void check_nodes(const Config& config, int ranks);

// Runs both checks and adds their errors to `refusals`.
void check_rank_counts(const Config& config, int ranks, ConfigRefusals& refusals);

}  // namespace ds
