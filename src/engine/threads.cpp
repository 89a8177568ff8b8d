#include "engine/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace ds {
namespace {

int variable(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

int threads_of_rank(const Config& config, int world) {
  if (config.threads > 0) return config.threads;
  // DS_CPU_RANKS is set by `libds launch --bind`, LOCAL_SIZE by every launch.
  int ranks = variable("DS_CPU_RANKS", variable("LOCAL_SIZE", world));
  return std::max(1, static_cast<int>(usable_cpus().size()) / std::max(1, ranks));
}

std::vector<int> cpus_of_rank(const std::vector<int>& usable, int online, int rank, int size,
                              int threads) {
  int count = static_cast<int>(usable.size()), first = -1;
  if (size < 1 || rank < 0 || rank >= size) return {};
  if (threads == count / size) {
    first = rank * threads;
  } else if (threads == count && count < online) {
    first = 0;
  }
  if (first < 0 || threads < 1) return {};
  return {usable.begin() + first, usable.begin() + first + threads};
}

std::vector<int> cpus_of_rank(const Config& config, int rank, int world, int threads) {
  if (!config.pin_threads) return {};
  // The variables of a launcher apply only if they describe these ranks.
  bool launched = variable("WORLD_SIZE", 0) == world;
  // `libds launch --bind` has bound the process to some CPUs and says which other ranks share them.
  int local = launched ? variable("DS_CPU_RANK", variable("LOCAL_RANK", rank)) : rank;
  int size = launched ? variable("DS_CPU_RANKS", variable("LOCAL_SIZE", world)) : world;
  return cpus_of_rank(usable_cpus(), static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), local, size,
                      threads);
}

}  // namespace ds
