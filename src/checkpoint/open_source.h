#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// Opens the checkpoint at or below `path`: one that DeepSpeed saved (deepspeed/source.h), or one of
// libds, found as by find_checkpoint(). Throws DS_ERROR_NOT_FOUND if there is neither.
std::unique_ptr<StateSource> open_source(const std::string& path,
                                         SourceParts parts = SourceParts::all);

}  // namespace ds
