#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// Append the keys of zero_optimization except its offload sections: the keys of stages and buckets,
// of shard groups, and of codes.
void zero_keys(KeyList& keys);
void shard_group_keys(KeyList& keys);
void code_keys(KeyList& keys);

// Throws DS_ERROR_CONFIG if a key of quantization does not fit the stage or the other keys.
void check_quantization(const Config& config);

// Sets the keys that were given as "auto" and depend on the model's width `hidden`
// (Config::waiting), with the formulas of Hugging Face's integration.
void fill_from_model(Config& config, int64_t hidden);
// Calls fill_from_model() if the configuration itself has the model's width.
void fill_from_own_model(Config& config);

}  // namespace ds
