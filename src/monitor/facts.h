#pragma once
#include <string>

#include "monitor/run_record.h"

namespace ds {

// Returns, for each tier, the most bytes that were allocated after any step.
TierBytes peak_bytes(const RunSummary& summary);

// Returns the most important facts about a run as HTML tiles, each with a name, a short value and a
// line of detail. Facts that are not known have no tile.
std::string fact_tiles(const RunSummary& summary);

}  // namespace ds
