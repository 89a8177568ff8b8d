#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// Limits of memory for transfers that run ahead.
struct HoistOptions {
  // The number of elements of whole parameters that may be gathered ahead. A gather of more
  // elements does not move.
  int64_t prefetch_elements = 0;
  // The number of bytes of host memory that loads for the host queue may fill ahead.
  int64_t load_bytes = 0;
  // The number of elements of whole parameters of partitioned buckets that may be live at once.
  int64_t max_live_elements = 0;
};

// Moves starts (all_gather of parameters, fetch, load) ahead of the consumer of an earlier start of
// the same kind, so that transfer i+1 runs under compute i. A gather moves ahead by at most four
// consumers, a fetch by at most one, a load by at most two or, for the host queue, by as many as
// load_bytes allows. Data dependences, the limits and the order of each queue stay intact, except
// that gathers may pass reductions.
void hoist(Program& program, const HoistOptions& options);

}  // namespace ds
