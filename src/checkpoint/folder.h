#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/base/error.h"

namespace ds {

// Names below folder that save_checkpoint makes, parsed; in the order of commits.
struct CheckpointName {
  int64_t step = 0;
  int64_t commit = 0;
  std::string tag;  // "": none
  std::string name;
};
std::vector<CheckpointName> list_checkpoints(const std::string& folder);
std::string checkpoint_name(int64_t step, int64_t commit, const std::string& tag = "");
std::string tag_of_checkpoint(const std::string& path);  // "": it has none
// Refuses what cannot be a tag: 1 to 32 of A-Z a-z 0-9 . _ -
void require_tag(const std::string& tag);
void remove_checkpoint(const std::string& path);  // never throws

// What is in a folder of checkpoints and should not be. Nobody else may save there; what cannot be
// removed is logged. Local. Leftovers: of saves and removals that were cut off; a folder without
// manifest is no checkpoint; returns the number of the last commit, counting leftovers, 0 without
// any. Older ones: all but the newest, which are those committed last, what `keep` names, and the
// newest whole one of each tag.
int64_t remove_leftovers(const std::string& folder);
void remove_older_checkpoints(const std::string& folder, const Keep& keep);

// Path of the last committed checkpoint below folder whose files are all there in full size, or ""
// when there is none. Logs a warning for each later one that is damaged. `before`: path or name of
// one; only those committed before it count. `tag`: only those that have it count, unless it is "".
// `newest_fault`: gets what is wrong with the first that is skipped, unless it has an error
// already. Local.
std::string latest_checkpoint(const std::string& folder, const std::string& before = "",
                              const std::string& tag = "",
                              std::optional<Error>* newest_fault = nullptr);
// The checkpoint that `folder` is, else the last one as above below it, or below the checkpoints/
// of a run. Without one DS_ERROR_NOT_FOUND, or what is wrong with the newest where all of them are
// damaged. Local.
std::string find_checkpoint(const std::string& folder, const std::string& tag = "");
// What find_checkpoint finds when `damaged`, which it found, and later ones are left out; "" when
// there is none, or when `folder` is a checkpoint: that one was asked for by name. Local.
std::string find_older_checkpoint(const std::string& folder, const std::string& damaged,
                                  const std::string& tag = "");
// Whether a checkpoint was committed below folder, damaged or not.
bool has_checkpoints(const std::string& folder);

}  // namespace ds
