#pragma once
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state_access.h"

namespace ds {

// Canonical checkpoint, collective over all ranks, on a file system that all ranks share. Makes
// folder/step-NNNNNNNN-C/ with one safetensors file per state kind (tensors by parameter name, unpadded,
// f32), each written by all ranks at disjoint offsets, then synced; then rank 0 commits manifest.json (all
// ranks' piece hashes) by an atomic rename. C counts the commits into folder, so saving a step again never
// touches the older checkpoint of it. After the commit the older ones that `keep` does not name are removed.
// Returns the path. If one rank fails, every rank throws its error and nothing is committed; the older
// checkpoints stay.
std::string save_checkpoint(StateAccess& state, const std::string& folder, const CheckpointInfo& info,
                            const Keep& keep = {});

}  // namespace ds
