#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// Returns the folder with the files of a checkpoint that DeepSpeed saved, at or below `path`: the
// folder that the file `latest` or `latest_universal` in it names or, without such a file, `path`
// itself. Returns "" if `path` has neither. Throws if the file names a folder without such files.
std::string find_deepspeed(const std::string& path);

// Opens a folder that find_deepspeed() returned, with the files of ZeRO 1, 2 or 3 or the universal
// layout. First checks everything that `parts` selects: checksums, that the file of every rank
// exists, and that the ranks together have every element of every parameter. Throws
// DS_ERROR_NOT_FOUND naming a missing file, DS_ERROR_CORRUPT naming a damaged one, and
// DS_ERROR_UNSUPPORTED naming a feature that libds cannot represent.
std::unique_ptr<StateSource> open_deepspeed(const std::string& folder, SourceParts parts);

}  // namespace ds
