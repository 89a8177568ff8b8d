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

// Predicts a timeline. It illustrates the order and is not a forecast: the duration of an
// instruction is the longer of its arithmetic and its transfers at the machine's rates, and it
// starts when its queue and everything that it waits for are done. The prediction assumes that
// ranks are equally fast, launches are free and the run before has finished. It shows one round of
// a repeated stretch.
Timeline predict_timeline(const Program& program, const Machine& machine);

// Returns the bytes of `tier` in use from each point in time on, in ascending order of time: the
// persistent arena plus every transient buffer from its first to its last instruction.
std::vector<std::pair<double, int64_t>> bytes_over_time(const Program& program,
                                                        const Timeline& timeline, Tier tier);

}  // namespace ds
