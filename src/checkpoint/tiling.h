#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/manifest.h"

namespace ds {

// "" when the pieces, sorted by their begin, have each of a tensor's `numel` elements once; else the line
// that says what is wrong with which of them. Takes n log n of n pieces, however many rows these claim to
// have.
std::string find_bad_tiling(std::span<const Piece> pieces, int64_t numel);

}  // namespace ds
