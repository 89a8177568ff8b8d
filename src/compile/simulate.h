#pragma once
#include <span>

#include "core/program/program.h"

namespace ds {

// Simulates the collectives of all ranks of one program; rank r runs ranks[r]. A collective happens
// when every rank of its group has reached it with the same operation, place in the order, bytes
// and types. Throws DS_ERROR_INTERNAL if calls that meet differ or if ranks wait forever; the
// message says where each rank is. The simulation always ends. Its time is proportional to the
// number of collectives of all ranks.
//
// Repeated instructions are simulated in rounds 0, 1 and the last. If all ranks have the same
// number of rounds, calls of the other rounds meet as in round 1 (core/program/repeat.h).
void simulate(std::span<const Program* const> ranks);

}  // namespace ds
