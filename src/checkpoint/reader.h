#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state_access.h"

namespace ds {

// Callbacks of a load. Each is called on every rank and may be empty, but a load with restorable()
// also needs restore().
struct LoadCalls {
  // Returns whether restore() could recreate the present states. If it returns true on every rank,
  // the load may overwrite them before it has checked every hash. An empty function counts as
  // false.
  std::function<bool(const CheckpointInfo&)> restorable;
  // Called after the checks that precede the first change of a state. Collective.
  std::function<void(const CheckpointInfo&)> checked;
  // Recreates the states after a load failed in the middle of overwriting them. Called only if
  // restorable() was true on all ranks, and not after an error of communication. Collective.
  std::function<void()> restore;
};

// Loads a checkpoint that was saved at any world size and ZeRO stage. Names and shapes must match
// the engine's (DS_ERROR_CONFIG naming both), and all ranks must see the same checkpoint. Each
// piece is compared with its hash on one rank (DS_ERROR_CORRUPT naming tensor and file). If
// calls.restorable() is true on all ranks, files are read once, and a load that fails calls
// restore(). Otherwise they are read twice: the first pass checks all hashes before any state
// changes. Collective: if one rank fails, every rank throws its error.
CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path,
                               const LoadCalls& calls = {});
// Returns the data of the checkpoint in the folder `path`, without its tensors. Local.
CheckpointInfo read_checkpoint_info(const std::string& path);

}  // namespace ds
