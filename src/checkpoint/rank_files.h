#pragma once
#include <cstddef>
#include <string>

#include "checkpoint/manifest.h"

namespace ds {

// Files that each rank writes for itself: its states (own_files.h) and its attachments
// (attachments.h). The manifest lists each with its size and hash.

// Return the names of a rank's files, such as "own-00001.safetensors" and
// "attached-00001.safetensors".
std::string own_file(size_t rank);
std::string attached_file(size_t rank);

// Throws DS_ERROR_CORRUPT unless the file `path` has the size that the manifest lists. If `whole`
// is set, also reads the file and compares its hash.
void check_rank_file(const ManifestRankFile& listed, const std::string& path, bool whole);

// Checks all such files of the checkpoint in the folder `path`.
void check_rank_files(const Manifest& manifest, const std::string& path, bool whole);

}  // namespace ds
