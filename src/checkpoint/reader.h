#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state_access.h"

namespace ds {

// What a load asks of its caller. Each call may be empty, and is made on every rank.
struct LoadCalls {
  // Whether restore() would make the states again that there are now, so that what is read may go
  // into them before all of it is checked. Not asked: no. All ranks must say so.
  std::function<bool(const CheckpointInfo&)> restorable;
  // Before the first state changes; collective.
  std::function<void(const CheckpointInfo&)> checked;
  // Ends a load that is refused after states have changed; only where restorable() was true.
  // Collective.
  std::function<void()> restore;
};

// Reads a checkpoint made at any world size and stage: names and shapes must match the engine's
// (DS_ERROR_CONFIG naming both), and all ranks must see the same checkpoint. Every piece is
// compared with its hash by a rank (DS_ERROR_CORRUPT naming tensor and file). Where the caller can
// restore its states, files are read once, and a load that is refused ends with restore(); else
// they are read twice, and all hashes are checked before any state changes. Collective: if one rank
// fails, every rank throws its error.
CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path,
                               const LoadCalls& calls = {});
CheckpointInfo read_checkpoint_info(const std::string& path);

}  // namespace ds
