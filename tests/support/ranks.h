#pragma once
#include <functional>

#include "comm/communicator.h"

namespace ds::test {

// Runs body(comm) on `world` threads, each a rank of one group. A rank that throws aborts the
// group; after all ranks have ended, the error of the lowest rank is thrown again. transport:
// "threads", "shm", or "caller" for collectives of a host application (caller.h).
void run_ranks(int world, const std::function<void(Communicator&)>& body,
               const char* transport = "threads");

}  // namespace ds::test
