#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ds {

// A control group that limits the memory of this process together with all others in the group.
struct GroupLimit {
  // Names the group within its machine: two processes of a machine share a group if the ids are
  // equal.
  std::string id;
  // The limit on memory plus swap, in bytes.
  int64_t bytes = 0;
  // Number of the job's ranks in the group, if the caller has counted them.
  int ranks = 1;
};

// Memory and swap of this host, in bytes.
struct HostMemory {
  // Memory and swap of the whole machine.
  int64_t machine = 0;
  // Ordered from the innermost group outwards.
  std::vector<GroupLimit> groups;
  // The kernel's estimate of the memory and free swap that a new process could use now, or -1 if
  // the kernel has no estimate.
  int64_t available = -1;
};
inline constexpr int64_t kNoLimit = INT64_MAX / 2;

HostMemory host_memory();

// Returns the limits of the process's control group and of the groups around it. Under cgroup v2 a
// limit is memory.max plus the part of `swap` that memory.swap.max of this group and of the groups
// inside it allows; under v1 it is memory.limit_in_bytes plus `swap`, at most
// memory.memsw.limit_in_bytes. Groups without a limit are left out. Containers and batch systems
// set limits. `root` is prepended to /proc and /sys, for tests.
std::vector<GroupLimit> group_limits(int64_t swap, const std::string& root = "");

// Returns a name of this machine that is the same in all its processes, whatever container they run
// in, until it reboots.
std::string machine_identity();

}  // namespace ds
