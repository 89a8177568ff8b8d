#pragma once
#include <cstdint>

namespace ds {

// The purpose of random bits, which is the `op` of their random stream.
enum class DrawFor : uint32_t { offset = 1, round = 2, mask = 3, heldout_mask = 4 };

// Returns the first 64 random bits of block `index` of the random stream of (seed, epoch, purpose).
uint64_t draw(uint64_t seed, int64_t epoch, DrawFor purpose, uint64_t index);

// Returns the image of `index` under the permutation of [0, count) for (seed, epoch), in which an
// epoch visits its samples. It is a pure function, so no rank keeps a list of an epoch.
int64_t permute(uint64_t seed, int64_t epoch, int64_t index, int64_t count);

}  // namespace ds
