#pragma once
#include <span>

#include "core/program/program.h"

namespace ds {

// Plays the collectives of all ranks of one program against each other: ranks[r] is what rank r
// runs. A collective happens when every rank of its group has come to it with the same operation,
// place in the order, bytes and types. Throws DS_ERROR_INTERNAL when two that meet differ, or when
// ranks wait for ever; the message says what each of them waits for. Takes time in proportion to
// the collectives of all ranks, and always ends.
//
// Of repeated instructions the rounds 0, 1 and the last are played: where all ranks have as many
// rounds, the others meet like round 1 (core/program/repeat.h).
void simulate(std::span<const Program* const> ranks);

}  // namespace ds
