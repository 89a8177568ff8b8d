#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/program/program.h"

namespace ds {

// The times at which the instructions of one run would begin and end on a machine, in seconds.
struct Timeline {
  IdVector<InstrId, double> begin, end;
  // Duration of the whole run.
  double seconds = 0;
};

// Predicts a timeline, which illustrates the order and is not a forecast. The duration of an
// instruction is the longer of the times for its arithmetic and for its bytes at the machine's
// rates. An instruction starts when its queue is free and everything that it waits for has ended.
// The prediction assumes that ranks are equally fast, launches are free and the run before has
// finished. It shows one round of a repeated stretch.
Timeline predict_timeline(const Program& program, const Machine& machine);

// Returns, in ascending order of time, pairs of a time and the number of bytes of `tier` in use
// from then on: the persistent arena, and every transient buffer from its first to its last
// instruction or, if it is kept, during the whole run.
std::vector<std::pair<double, int64_t>> bytes_over_time(const Program& program,
                                                        const Timeline& timeline, Tier tier);

}  // namespace ds
