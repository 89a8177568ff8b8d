#pragma once
#include <cstddef>

namespace ds {

// Of no bytes, either pointer may be null. What exceeds the caches goes past them, `whole` (0:
// this) being what the bytes are a part of.
void copy(void* to, const void* from, size_t bytes, size_t whole = 0);

}  // namespace ds
