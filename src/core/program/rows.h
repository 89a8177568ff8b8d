#pragma once
#include <cstdint>

namespace ds {

// The row number that marks an unused place in packed rows. It is larger than any row number of a
// table.
inline constexpr int32_t kNoRow = 0x7fffffff;

}  // namespace ds
