#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace ds::test {

// Runs body(rank) in `ranks` threads and joins them. Rethrows the first exception.
void spawn_threads(int ranks, const std::function<void(int)>& body);

// Runs body(rank) in `ranks` forked processes and waits for them. Returns, for each rank, 0 if it
// succeeded, 1 if the body threw or a GoogleTest expectation failed (both are printed), or 128 plus
// the signal that ended the process. The calling process must have only one thread.
std::vector<int> spawn_processes(int ranks, const std::function<void(int)>& body);

// Starts the program args[0] with the environment of this process plus `environment`
// ("NAME=VALUE"). Its stdout and stderr go to the new files `out` and `err`. The caller must wait
// for the process.
pid_t start_process(const std::vector<std::string>& args,
                    const std::vector<std::string>& environment, const std::string& out,
                    const std::string& err);

}  // namespace ds::test
