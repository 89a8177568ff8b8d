#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds::deepspeed {

// A folder with zero/NAME/fp32.pt for each parameter. Errors as of open_deepspeed.
std::unique_ptr<StateSource> open_universal(const std::string& folder, SourceParts parts);

}  // namespace ds::deepspeed
