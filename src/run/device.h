#pragma once
#include "comm/communicator.h"
#include "core/config/config.h"

namespace ds {

// Where a rank has no device of the configured name (no driver, none of that number), the run goes
// on with "cpu" on every rank, and rank 0 warns of it in one line that says why; refused with the
// same line where run.device_fallback is false. Bits of two kinds of devices differ, so no rank
// does so alone. Collective.
void settle_device(Config& config, Communicator& comm);

}  // namespace ds
