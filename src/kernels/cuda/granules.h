#pragma once
#include <cstdint>

namespace ds::cuda {

// Sums over granules: a thread adds up the elements of one.
constexpr uint32_t kGranuleThreads = 128;  // granules of a block
constexpr int kGranuleTile = 32;           // elements of each that are in shared memory at a time
// Floats of the shared memory that one value of an element needs. A row has one more than the tile
// is wide: no two threads of a warp meet in a bank.
constexpr int kGranuleRow = kGranuleTile + 1;
constexpr int kGranuleRoom = static_cast<int>(kGranuleThreads) * kGranuleRow;

}  // namespace ds::cuda
