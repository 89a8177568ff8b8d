// Replaces tile_product.cpp in builds for architectures without AMX, where runs_tiles() is always
// false.
#include "core/base/error.h"
#include "kernels/cpu/tile_product.h"

namespace ds::cpu {

TileProducts::~TileProducts() = default;

void TileProducts::multiply(const TileProduct&) {
  raise(DS_ERROR_UNSUPPORTED, "this build has no AMX tile products");
}

}  // namespace ds::cpu
