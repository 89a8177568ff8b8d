#pragma once
#include <cstdint>

namespace ds {

// Identifies this process among its ancestors and descendants: `number` is its process id, and
// `forks` the number of forks between the first process and this one. Process ids can be reused,
// but the number of forks always distinguishes a child from its ancestors.
struct ProcessMark {
  int32_t number = 0;
  uint64_t forks = 0;
};

// Returns the mark of this process. Unlike getpid(), it needs no system call, so it may be used for
// each collective.
ProcessMark this_process() noexcept;

}  // namespace ds
