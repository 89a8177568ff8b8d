#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/base/error.h"

namespace ds {

// The parsed name of a checkpoint that save_checkpoint() wrote.
struct CheckpointName {
  int64_t step = 0;
  int64_t commit = 0;
  // The tag, or "" if the checkpoint has none.
  std::string tag;
  std::string name;
};
// Returns the checkpoints below `folder`, complete or not, in the order of their commits.
std::vector<CheckpointName> list_checkpoints(const std::string& folder);
// Returns the name "step-NNNNNNNN-C" of a checkpoint, followed by ".TAG" if it has a tag.
std::string checkpoint_name(int64_t step, int64_t commit, const std::string& tag = "");
// Returns the tag in the name of a checkpoint, or "" if it has none.
std::string tag_of_checkpoint(const std::string& path);
// Throws unless `tag` is 1 to 32 characters of A-Z a-z 0-9 . _ -
void require_tag(const std::string& tag);
// Removes a checkpoint. Never throws; logs a warning if it cannot remove something.
void remove_checkpoint(const std::string& path);

// remove_leftovers() and remove_older_checkpoints() clean up a folder of checkpoints. They are
// local, log what they cannot remove, and require that no other process saves into the folder
// meanwhile.

// Removes the folders without a manifest, which interrupted saves and removals leave. Returns the
// highest commit number found, including the removed folders, or 0 if none exist.
int64_t remove_leftovers(const std::string& folder);
// Removes all checkpoints except the last keep.newest commits, the checkpoint that keep.also names,
// and the newest complete checkpoint of each tag. Does nothing if keep.newest is 0.
void remove_older_checkpoints(const std::string& folder, const Keep& keep);

// Returns the path of the last committed checkpoint below `folder` whose files all exist in full
// size, or "". Logs a warning for each damaged checkpoint that was committed later. If `before`,
// the path or name of a checkpoint, is given, considers only checkpoints committed before that one;
// if `tag` is given, only checkpoints with this tag. Stores the error of the newest skipped
// checkpoint in `newest_fault` unless it already holds an error. Local.
std::string latest_checkpoint(const std::string& folder, const std::string& before = "",
                              const std::string& tag = "",
                              std::optional<Error>* newest_fault = nullptr);
// Returns `folder` if it is a checkpoint. Otherwise returns the checkpoint that latest_checkpoint()
// finds below `folder` or, for a run folder, below its checkpoints/. Considers only checkpoints
// with the tag, if one is given. Throws DS_ERROR_NOT_FOUND if none was committed, and the error of
// the newest one if all are damaged. Local.
std::string find_checkpoint(const std::string& folder, const std::string& tag = "");
// Returns the newest complete checkpoint that find_checkpoint() would consider and that was
// committed before `damaged`, which find_checkpoint() returned. Returns "" if none exists, or if
// `folder` itself is a checkpoint, because the caller then named exactly that checkpoint. Local.
std::string find_older_checkpoint(const std::string& folder, const std::string& damaged,
                                  const std::string& tag = "");
// Returns whether a checkpoint was committed below `folder`, damaged or not.
bool has_checkpoints(const std::string& folder);

}  // namespace ds
