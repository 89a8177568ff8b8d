#pragma once
#include <cstdint>

namespace ds::cuda {

// The extent of a grid (in blocks) or of a block (in threads).
struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

}  // namespace ds::cuda
