#pragma once
#include <sys/types.h>

#include <cerrno>

namespace ds {

// Returns whether a signal interrupted a system call that returned `result` before the call did
// anything; the caller then makes it again. Do not use this for close(): an interrupted close() has
// closed the file, and another thread may already have its number.
inline bool is_interrupted(ssize_t result) noexcept { return result < 0 && errno == EINTR; }

}  // namespace ds
