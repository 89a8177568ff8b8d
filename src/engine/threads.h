#pragma once
#include <vector>

#include "core/config/config.h"

namespace ds {

// Returns the CPUs that the calling thread may run on, ascending; {0} if they are unknown.
std::vector<int> usable_cpus();

// Returns the number of compute threads of a rank: run.threads, or else the number of cores that
// this process may use divided by the number of ranks of this host (DS_CPU_RANKS or LOCAL_SIZE of
// `libds launch`, otherwise `world`); at least 1.
int threads_of_rank(const Config& config, int world);

// Returns one CPU for each of `threads` threads of rank `rank` of `size` ranks of one host, or none
// if the threads should not be pinned. `usable` is the result of usable_cpus() on this rank, and
// `online` the number of CPUs of the host. If `threads` is the largest number for which `usable`
// has different CPUs for all ranks, each rank gets its share. A rank that may use only some CPUs of
// the host, exactly as many as it has threads, gets them all. If there are fewer threads, they are
// not pinned, because another application that does the same would pin its threads to the same CPUs
// while other CPUs idle.
std::vector<int> cpus_of_rank(const std::vector<int>& usable, int online, int rank, int size,
                              int threads);

// Returns the CPUs of this process's threads: rank `rank` of `world`, all on this host unless the
// launcher's LOCAL_RANK and LOCAL_SIZE say otherwise. Returns none if run.pin_threads is false.
std::vector<int> cpus_of_rank(const Config& config, int rank, int world, int threads);

}  // namespace ds
