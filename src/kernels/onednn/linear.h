#pragma once
#include <cstdint>

namespace ds::onednn {

// A tile of an m x n product: rows x columns of the output, each summed over all of k.
struct Tile {
  int64_t rows = 0;
  int64_t columns = 0;
  bool operator==(const Tile&) const = default;
};
// Returns the size of the tiles into which an m x n product is cut. It depends only on the shape,
// so that bits do not depend on the number of threads.
Tile tile_for(int64_t m, int64_t n, bool transpose_a);

// Returns the number of primitives that are in the process's cache.
int64_t cached_primitives();

}  // namespace ds::onednn
