#pragma once
#include <cstdint>
#include <string>

namespace ds {

// Bytes of memory and swap.
struct HostMemory {
  int64_t machine = 0;     // that this machine has
  int64_t group = 0;       // that the control group of this process may use; kNoLimit where nothing limits it
  int64_t available = -1;  // that this machine could give to a new program now; -1: not known
};
inline constexpr int64_t kNoLimit = INT64_MAX / 2;

HostMemory host_memory();

// The lowest limit of the process's control group and those around it: of cgroup v2 memory.max and what
// memory.swap.max leaves of `swap`, of v1 memory.limit_in_bytes with all of `swap`, or
// memory.memsw.limit_in_bytes. Containers and batch systems set them. root: stands before /proc and /sys.
int64_t group_memory(int64_t swap, const std::string& root = "");

}  // namespace ds
