#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// Opens what `path` is or holds: a checkpoint that DeepSpeed saved (deepspeed_source.h) or one of
// libds, as find_checkpoint finds it. DS_ERROR_NOT_FOUND when it is neither.
std::unique_ptr<StateSource> open_source(const std::string& path,
                                         SourceParts parts = SourceParts::all);

}  // namespace ds
