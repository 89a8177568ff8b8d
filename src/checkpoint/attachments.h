#pragma once
#include <cstddef>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace ds {

// Files of attachments: one safetensors file for each rank, which the manifest lists with its size
// and hash. If no rank has attached anything, there are no such files.

// Writes and syncs the file of `rank` in the folder `path`. Returns its size and hash.
ManifestRankFile write_attached_file(const Attachments& attached, const std::string& path,
                                     size_t rank);

// Returns the attachment `name` of `rank` from the checkpoint in the folder `path`, whose hashes a
// load has compared. Throws DS_ERROR_NOT_FOUND if there is no such attachment.
Attachment read_attachment(const Manifest& manifest, const std::string& path, size_t rank,
                           const std::string& name);
// Checks the file of `rank` against its hash and returns all attachments in it.
Attachments read_attachments(const Manifest& manifest, const std::string& path, size_t rank);

}  // namespace ds
