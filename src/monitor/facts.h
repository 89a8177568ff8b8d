#pragma once
#include <string>

#include "monitor/run_record.h"

namespace ds {

// The most that was allocated in each tier after any step.
TierBytes peak_bytes(const RunSummary& summary);

// What a reader wants to know first, as tiles: each a name, a short value and a line of detail.
// What is not known has no tile.
std::string fact_tiles(const RunSummary& summary);

}  // namespace ds
