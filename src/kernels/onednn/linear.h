#pragma once
#include <cstdint>

namespace ds::onednn {

// How an m x n matrix product is cut into tasks: a function of its shape alone, so that bits do not
// depend on the number of threads. A tile is rows x columns of the output and the whole of k.
struct Tile {
  int64_t rows = 0;
  int64_t columns = 0;
  bool operator==(const Tile&) const = default;
};
Tile tile_for(int64_t m, int64_t n, bool transpose_a);

// Primitives in the process's cache now.
int64_t cached_primitives();

}  // namespace ds::onednn
