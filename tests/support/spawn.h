#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace ds::test {

// Runs body(rank) in `ranks` threads and joins them. The first exception is thrown again here.
void spawn_threads(int ranks, const std::function<void(int)>& body);

// Runs body(rank) in `ranks` forked processes and waits. Returns per rank 0, 1 when the body threw
// or a gtest expectation failed (both are printed), or 128 + the signal that ended it. Call it
// while this process has one thread.
std::vector<int> spawn_processes(int ranks, const std::function<void(int)>& body);

// Starts the program args[0] with this environment and `environment` ("NAME=VALUE") added; its
// stdout and stderr go to files made anew. The caller waits for it.
pid_t start_process(const std::vector<std::string>& args,
                    const std::vector<std::string>& environment, const std::string& out,
                    const std::string& err);

}  // namespace ds::test
