#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/config/refusals.h"

namespace ds {

// Throws DS_ERROR_CONFIG naming the key if there are shard groups below stage 3, or if their size
// does not divide `ranks` or is not supported.
void check_shard_group(const ZeroConfig& zero, int ranks);
// Throws DS_ERROR_CONFIG naming the key if topology.nodes does not divide `ranks`.
void check_nodes(int64_t nodes, int ranks);

// Runs both checks and adds their errors to `refusals`.
void check_rank_counts(const Config& config, int ranks, ConfigRefusals& refusals);

}  // namespace ds
