#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compile/memory_plan.h"
#include "core/base/host_memory.h"
#include "core/config/config.h"

namespace ds {

// A limit on memory, and the bytes of that memory that a plan needs.
struct MemoryLimit {
  // "host memory", "host memory of its control group", or a key such as "memory_budget.device".
  std::string of;
  // The total bytes needed by all ranks that share this memory.
  int64_t needs = 0;
  int64_t has = 0;
  // The number of ranks that share this memory, or 1 if each rank has its own.
  int ranks = 1;
  // The bytes that are free now, or -1 if unknown.
  int64_t available = -1;
  bool holds() const { return needs <= has; }
};

// Returns the bytes of the machine's memory that a rank needs: the bytes of the host tier and, if
// the device has no memory of its own, the bytes of the device tier except `unbacked` bytes, for
// which no pages are allocated.
int64_t bytes_on_host(const MemoryPlan& memory, bool own_device_memory, int64_t unbacked = 0);

// Returns the limit that the machine's memory sets if each of `ranks` ranks needs `bytes`. If the
// machine has enough memory but a control group has too little for its ranks, returns the limit of
// that group. `libds plan` prints the limit, and an engine refuses a plan that exceeds it.
MemoryLimit host_limit(int64_t bytes, int ranks, const HostMemory& has);

// Returns the limits that memory_budget sets, one for each tier that has a budget.
std::vector<MemoryLimit> budget_limits(const MemoryPlan& memory, const MemoryBudget& budget);

// Returns a text like "12.3 GiB", with at least three digits or, below 1 GiB, with three or five
// decimals.
std::string gib_text(int64_t bytes);
// Returns a text like "needs 667 GiB of host memory (8 ranks), this machine has 23.4 GiB (available
// 22.0 GiB)".
std::string limit_text(const MemoryLimit& limit);

}  // namespace ds
