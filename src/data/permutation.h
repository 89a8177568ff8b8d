#pragma once
#include <cstdint>

namespace ds {

// What a draw is for: the `op` of its random stream.
enum class DrawFor : uint32_t { offset = 1, round = 2, mask = 3, heldout_mask = 4 };

// Word `index` of the random stream of (seed, epoch, purpose).
uint64_t draw(uint64_t seed, int64_t epoch, DrawFor purpose, uint64_t index);

// Image of `index` under the permutation of [0, count) that belongs to (seed, epoch): the order in
// which an epoch visits its samples. A pure function, so no rank keeps a list of an epoch.
int64_t permute(uint64_t seed, int64_t epoch, int64_t index, int64_t count);

}  // namespace ds
