#pragma once
#include "comm/communicator.h"
#include "core/config/config.h"

namespace ds {

// Determines the device of the run. If a rank does not have the configured device (no driver, or no
// device of that number), the run continues with "cpu" on every rank, and rank 0 logs a warning
// with the reason. If run.device_fallback is false, the run is refused with the same message. No
// rank falls back alone, because the bits of results differ between kinds of devices. Collective.
void settle_device(Config& config, Communicator& comm);

}  // namespace ds
