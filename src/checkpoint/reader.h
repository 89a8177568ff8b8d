#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state_access.h"

namespace ds {

// Reads a checkpoint made at any world size and stage: names and shapes must match the engine's
// (DS_ERROR_CONFIG naming both). All hashes are checked, each rank a share, before any state changes
// (DS_ERROR_CORRUPT naming tensor and file), and that all ranks see the same checkpoint. Then checked() is
// called, on every rank, with what is about to be read. Collective: if one rank fails, every rank throws its
// error.
CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path,
                               const std::function<void(const CheckpointInfo&)>& checked = {});
CheckpointInfo read_checkpoint_info(const std::string& path);

}  // namespace ds
