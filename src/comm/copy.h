#pragma once
#include <cstddef>

namespace ds {

// Copies bytes between ranges that are the same or do not overlap. If `bytes` is 0, either pointer
// may be null. `whole` is the size of the transfer that the bytes are a part of (0: they are the
// whole). On x86, copies of transfers of 4 MiB or more write past the caches.
void copy(void* to, const void* from, size_t bytes, size_t whole = 0);

}  // namespace ds
