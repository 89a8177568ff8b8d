#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds::deepspeed {

// Opens a folder in the universal layout, with zero/NAME/fp32.pt for each parameter. Errors are
// those of open_deepspeed().
std::unique_ptr<StateSource> open_universal(const std::string& folder, SourceParts parts);

}  // namespace ds::deepspeed
