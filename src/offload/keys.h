#pragma once

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// These append the keys of zero_optimization.offload_optimizer, of zero_optimization.offload_param
// and of aio.
void offload_optimizer_keys(KeyList& keys);
void offload_param_keys(KeyList& keys);
void aio_keys(KeyList& keys);

// Throws DS_ERROR_CONFIG if keys of tiers, shard groups or file requests are missing, invalid or
// contradict each other.
void check_tiers(const Config& config);

}  // namespace ds
