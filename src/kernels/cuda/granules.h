#pragma once
// Sizes for sums over granules (granules-inl.h): one thread adds up the elements of a granule,
// which pass through shared memory tile by tile.
#include <cstdint>

namespace ds::cuda {

// The number of granules of a block. One thread adds up the elements of each granule.
constexpr uint32_t kGranuleThreads = 128;
// The number of elements of each granule that are in shared memory at a time.
constexpr int kGranuleTile = 32;
// The pitch of a row in shared memory, and the floats of all rows of a block. A row is one float
// longer than the tile, so that the threads of a warp, which read one row each, use different
// banks.
constexpr int kGranuleRow = kGranuleTile + 1;
constexpr int kGranuleRoom = static_cast<int>(kGranuleThreads) * kGranuleRow;

}  // namespace ds::cuda
