#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// The folder with the files of a checkpoint that DeepSpeed saved, at or below `path`: `path`
// itself, or the tag that its file latest or latest_universal names. "" when there is none.
std::string find_deepspeed(const std::string& path);

// Opens that folder: ZeRO 1, 2 or 3, or DeepSpeed's universal layout. Everything that is wanted is
// checked before it returns: its checksums, that the file of every rank is there, and that the
// ranks together have every element of every parameter. DS_ERROR_NOT_FOUND names a missing file,
// DS_ERROR_CORRUPT a damaged one, DS_ERROR_UNSUPPORTED what libds cannot represent.
std::unique_ptr<StateSource> open_deepspeed(const std::string& folder, SourceParts parts);

}  // namespace ds
