#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compile/memory_plan.h"
#include "core/base/host_memory.h"
#include "core/config/config.h"

namespace ds {

// One bound on memory, and what a plan needs of it.
struct MemoryLimit {
  std::string of;     // "host memory", "memory_budget.device", ...
  int64_t needs = 0;  // of all ranks that share it
  int64_t has = 0;
  int ranks = 1;           // that share it; 1: each rank has its own
  int64_t available = -1;  // now, of what it has; -1: not known
  bool holds() const { return needs <= has; }
};

// What a rank takes of its machine's memory: the host tier, and the device tier where the device
// has no memory of its own. unbacked: bytes of the plan that have no pages.
int64_t bytes_on_host(const MemoryPlan& memory, bool own_device_memory, int64_t unbacked = 0);

// The machine's memory, of which each of `ranks` ranks needs so many bytes; or the control group
// that holds too little for the ranks in it. What `libds plan` says and what an engine refuses are
// this.
MemoryLimit host_limit(int64_t bytes, int ranks, const HostMemory& has);

// Those that memory_budget sets, of each tier that has one.
std::vector<MemoryLimit> budget_limits(const MemoryPlan& memory, const MemoryBudget& budget);

// "12.3 GiB", with as many digits as there is need of.
std::string gib_text(int64_t bytes);
// "needs 667 GiB of host memory (8 ranks), this machine has 23.4 GiB (available 22.0 GiB)"
std::string limit_text(const MemoryLimit& limit);

}  // namespace ds
