#pragma once
#include <cstdint>

namespace ds {

// The number of a packed row that is not there: larger than that of any row of a table.
inline constexpr int32_t kNoRow = 0x7fffffff;

}  // namespace ds
