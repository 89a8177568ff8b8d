#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds::deepspeed {

// A folder with one file of optimizer states for each rank: ZeRO 1, 2 or 3. Errors as of
// open_deepspeed.
std::unique_ptr<StateSource> open_zero(const std::string& folder, SourceParts parts);

}  // namespace ds::deepspeed
