#pragma once
#include <cstdint>

#include "core/base/round.h"

namespace ds {

// The squares of the `count` elements of a matrix are summed in at most kUnitPieces pieces of
// unit_piece(count) elements each, so that a device can sum the pieces in parallel.
inline constexpr int64_t kUnitPieces = 64;
inline int64_t unit_piece(int64_t count) {
  return 256 * ceil_div(ceil_div(count, kUnitPieces), 256);
}

}  // namespace ds
