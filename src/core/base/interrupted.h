#pragma once
#include <sys/types.h>

#include <cerrno>

namespace ds {

// Returns whether a signal interrupted a system call that returned `result` before the call did
// anything; the caller then makes it again.
inline bool is_interrupted(ssize_t result) noexcept { return result < 0 && errno == EINTR; }

// Makes a system call, again if a signal interrupts it, and returns its result. Do not use this for
// close(): an interrupted close() has closed the file, and another thread may already have its
// number.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (is_interrupted(result)) result = call();
  return result;
}

}  // namespace ds
