#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// Limits of prefetch.
struct HoistOptions {
  int64_t prefetch_elements =
      0;                   // whole parameters that are gathered ahead; a larger one is not moved
  int64_t load_bytes = 0;  // host slots that loads for the host queue may fill ahead
  int64_t max_live_elements = 0;  // whole parameters that may live at once (partitioned buckets)
};

// Moves starts (all_gather of parameters, fetch, load) to before the consumer of an earlier start
// of the same kind, so that transfer i+1 runs under compute i: a gather at least one and at most
// four consumers ahead, a fetch one, a load two or, for the host queue, as many as load_bytes
// allows. Data, the limits and the order of each queue are kept, but gathers pass reductions.
void hoist(Program& program, const HoistOptions& options);

}  // namespace ds
