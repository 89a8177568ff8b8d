#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state_access.h"
#include "core/base/json.h"

namespace ds {

// Scalars of a checkpoint beside the tensors.
struct CheckpointInfo {
  int64_t step = 0;     // steps made
  int64_t skipped = 0;  // those of them that updated nothing: NaN or infinity
  int64_t updates_taken() const { return step - skipped; }
  uint64_t seed = 0;
  std::string numerics_key;
  std::vector<std::string> frozen;  // parameters that were not trained
  // Parameters that have had fewer updates than were taken, and how many: their bias correction counts
  // these.
  std::vector<std::pair<std::string, int64_t>> updates;
  Json config;       // effective configuration of the run that saved it
  Json client;       // the caller's own state (sampler position, metrics)
  std::string path;  // where it was read from; not stored
};

// Which committed checkpoints a save leaves in its folder.
struct Keep {
  int64_t newest = 0;  // so many, with the one just made; 0: all
  std::string also;    // path or name of one more, or ""
};

// Canonical checkpoint, collective over all ranks, on a file system that all ranks share. Makes
// folder/step-NNNNNNNN-C/ with one safetensors file per state kind (tensors by parameter name, unpadded,
// f32), each written by all ranks at disjoint offsets, then synced; then rank 0 commits manifest.json (all
// ranks' piece hashes) by an atomic rename. C counts the commits into folder, so saving a step again never
// touches the older checkpoint of it. After the commit the older ones that `keep` does not name are removed.
// Returns the path. If one rank fails, every rank throws its error and nothing is committed; the older
// checkpoints stay.
std::string save_checkpoint(StateAccess& state, const std::string& folder, const CheckpointInfo& info,
                            const Keep& keep = {});

// What is in a folder of checkpoints and should not be. Nobody else may save there; what cannot be removed is
// logged. Local. Leftovers: of saves and removals that were cut off; a folder without manifest is no
// checkpoint; returns the number of the last commit, counting leftovers, 0 without any. Older ones: all but
// the newest, which are those committed last, and what `keep` names.
int64_t remove_leftovers(const std::string& folder);
void remove_older_checkpoints(const std::string& folder, const Keep& keep);

// Path of the last committed checkpoint below folder whose files are all there in full size, or "" when there
// is none. Logs a warning for each later one that is damaged. `before`: path or name of one; only those
// committed before it count. Local.
std::string latest_checkpoint(const std::string& folder, const std::string& before = "");
// The checkpoint that `folder` is, else the last one as above below it, or below the checkpoints/ of a run;
// DS_ERROR_NOT_FOUND without one. Local.
std::string find_checkpoint(const std::string& folder);
// What find_checkpoint finds when `damaged`, which it found, and later ones are left out; "" when there is
// none, or when `folder` is a checkpoint: that one was asked for by name. Local.
std::string find_older_checkpoint(const std::string& folder, const std::string& damaged);
// Whether a checkpoint was committed below folder, damaged or not.
bool has_checkpoints(const std::string& folder);

// Reads a checkpoint made at any world size and stage: names and shapes must match the engine's
// (DS_ERROR_CONFIG naming both). All hashes are checked, each rank a share, before any state changes
// (DS_ERROR_CORRUPT naming tensor and file), and that all ranks see the same checkpoint. Then checked() is
// called, on every rank, with what is about to be read. Collective: if one rank fails, every rank throws its
// error.
CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path,
                               const std::function<void(const CheckpointInfo&)>& checked = {});
CheckpointInfo read_checkpoint_info(const std::string& path);

// xxh3-128 over (name, dtype, shape, bytes) of every tensor of every state kind in the order of names: equal
// for equal training state whatever the layout that saved it. Checks all of the manifest's hashes on the way:
// DS_ERROR_CORRUPT naming tensor and file.
std::string payload_hash(const std::string& path);

}  // namespace ds
