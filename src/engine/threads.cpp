#include "engine/threads.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace ds {

int threads_of_rank(const Config& config, int world) {
  if (config.threads > 0) return config.threads;
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const char* text = std::getenv("LOCAL_SIZE");
  int ranks = text ? std::atoi(text) : world;
  return std::max(1, cores / std::max(1, ranks));
}

}  // namespace ds
