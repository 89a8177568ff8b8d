#pragma once
#include <string>
#include <vector>

#include "checkpoint/state_access.h"
#include "core/base/json.h"

namespace ds {

// Scalars of a checkpoint beside the tensors.
struct CheckpointInfo {
  int64_t step = 0;  // optimizer steps taken
  uint64_t seed = 0;
  std::string numerics_key;
  Json config;  // effective configuration of the run that saved it
  Json client;  // the caller's own state (sampler position, metrics)
};

// Canonical checkpoint, collective over all ranks: folder/step-NNNNNNNN/ with one safetensors file per state
// kind (tensors by parameter name, unpadded, f32), each written by all ranks at disjoint offsets, then
// synced; then rank 0 commits manifest.json (all ranks' piece hashes) by an atomic rename. A folder without
// manifest is no checkpoint and is removed by the next save. keep > 0: older complete ones are removed after
// the commit.
std::string save_checkpoint(StateAccess& state, const std::string& folder, const CheckpointInfo& info,
                            int keep = 0);

// Path of the newest complete checkpoint below folder, or "" when there is none. Local.
std::string latest_checkpoint(const std::string& folder);

// Reads a checkpoint made at any world size and stage: names and shapes must match the engine's
// (DS_ERROR_CORRUPT or _CONFIG naming both), hashes are checked (each rank a share). Collective.
CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path);
CheckpointInfo read_checkpoint_info(const std::string& path);

// xxh3-128 over (name, dtype, shape, bytes) of every tensor of every state kind in the order of names: equal
// for equal training state whatever the layout that saved it.
std::string payload_hash(const std::string& path);

}  // namespace ds
