#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/program/program.h"

namespace ds {

// When every instruction of one run of a program would begin and end on a machine, in seconds.
struct Timeline {
  IdVector<InstrId, double> begin, end;
  double seconds = 0;  // of the whole run
};

// A picture of the order, not a forecast: an instruction takes the longer of its arithmetic and its
// bytes at the machine's rates, and begins when its queue and everything it waits for are done.
// Ranks are taken to be equally fast, launches to cost nothing, and the run before to be over. Of
// what is repeated it has one round.
Timeline predict_timeline(const Program& program, const Machine& machine);

// Bytes of `tier` in use from each time on, ascending by time: the persistent arena and every
// transient buffer between its first and its last instruction.
std::vector<std::pair<double, int64_t>> bytes_over_time(const Program& program,
                                                        const Timeline& timeline, Tier tier);

}  // namespace ds
