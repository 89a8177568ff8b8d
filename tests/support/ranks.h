#pragma once
#include <functional>

#include "comm/communicator.h"

namespace ds::test {

// Runs body(comm) on `world` threads, each a rank of one group. If ranks throw, throws what the
// lowest one did after all have ended; a rank that throws aborts the group. `transport`: "threads",
// "shm", or "caller", the collectives of a program (caller.h).
void run_ranks(int world, const std::function<void(Communicator&)>& body,
               const char* transport = "threads");

}  // namespace ds::test
