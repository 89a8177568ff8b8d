#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ds {

// A control group around this process that limits its memory, and that of all other processes in
// it.
struct GroupLimit {
  std::string id;     // processes of one machine have it alike if they are in the same group
  int64_t bytes = 0;  // of memory, and of swap
  int ranks = 1;      // of the job that are in it, where the caller has counted them
};

// Bytes of memory and swap.
struct HostMemory {
  int64_t machine = 0;             // that this machine has
  std::vector<GroupLimit> groups;  // from the innermost one on
  int64_t available = -1;  // that this machine could give to a new program now; -1: not known
};
inline constexpr int64_t kNoLimit = INT64_MAX / 2;

HostMemory host_memory();

// The limits of the process's control group and of those around it: of cgroup v2 memory.max and
// what memory.swap.max leaves of `swap`, of v1 memory.limit_in_bytes with all of `swap`, or
// memory.memsw.limit_in_bytes. Containers and batch systems set them. root: stands before /proc and
// /sys.
std::vector<GroupLimit> group_limits(int64_t swap, const std::string& root = "");

// The name that all processes of this machine have for it, whatever container they are in, until it
// starts again.
std::string machine_identity();

}  // namespace ds
