#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// Opens the checkpoint at or below `path`: a checkpoint of DeepSpeed, if find_deepspeed() finds
// one, otherwise the checkpoint of libds that find_checkpoint() returns. Throws DS_ERROR_NOT_FOUND
// if neither exists.
std::unique_ptr<StateSource> open_source(const std::string& path,
                                         SourceParts parts = SourceParts::all);

}  // namespace ds
