#pragma once
#include <cstdint>

namespace ds {

// The row number that marks an unused place in packed rows; larger than the number of any row in a
// table.
inline constexpr int32_t kNoRow = 0x7fffffff;

}  // namespace ds
