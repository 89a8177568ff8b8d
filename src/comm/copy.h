#pragma once
#include <cstddef>

namespace ds {

// Copies bytes that do not overlap. If `bytes` is 0, either pointer may be null. A copy that is
// larger than the caches bypasses them when it writes; `whole` is the size of the transfer that the
// bytes are a part of (0: only these bytes).
void copy(void* to, const void* from, size_t bytes, size_t whole = 0);

}  // namespace ds
