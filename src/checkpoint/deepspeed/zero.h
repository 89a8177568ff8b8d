#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds::deepspeed {

// Opens a folder saved by ZeRO 1, 2 or 3, with one file of optimizer states for each rank. Errors
// are those of open_deepspeed().
std::unique_ptr<StateSource> open_zero(const std::string& folder, SourceParts parts);

}  // namespace ds::deepspeed
