#pragma once
#include <vector>

#include "core/config/config.h"

namespace ds {

// CPUs that the calling thread may run on, ascending; {0} where the system does not say.
std::vector<int> usable_cpus();

// Compute threads of a rank: run.threads, or else the cores that this process may use divided by
// the ranks of this host (LOCAL_SIZE of `libds launch`, otherwise `world`); at least 1.
int threads_of_rank(const Config& config, int world);

// One CPU for each of `threads` threads of rank `rank` of `size` ranks of one host, or none where a
// thread is better left to the system. usable: what usable_cpus() gives this rank; online: CPUs of
// the host. Ranks that share `usable` out evenly, without room for one thread more each, get their
// share of it; a rank that was given CPUs of its own, as many as its threads, gets them all. Fewer
// threads stay free: another program with the same idea would pin its own to the same CPUs while
// others idle.
std::vector<int> cpus_of_rank(const std::vector<int>& usable, int online, int rank, int size,
                              int threads);

// The same for this process: rank `rank` of a communicator of `world`, whose ranks all run on this
// host unless the launcher's LOCAL_RANK and LOCAL_SIZE say otherwise. None with run.pin_threads
// false.
std::vector<int> cpus_of_rank(const Config& config, int rank, int world, int threads);

}  // namespace ds
