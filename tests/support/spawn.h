#pragma once
#include <functional>
#include <vector>

namespace ds::test {

// Runs body(rank) in `ranks` threads and joins them. The first exception is thrown again here.
void spawn_threads(int ranks, const std::function<void(int)>& body);

// Runs body(rank) in `ranks` forked processes and waits. Returns per rank 0, 1 when the body threw or a gtest
// expectation failed (both are printed), or 128 + the signal that ended it. Call it while this process has
// one thread.
std::vector<int> spawn_processes(int ranks, const std::function<void(int)>& body);

}  // namespace ds::test
