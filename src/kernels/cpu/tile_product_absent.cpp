// Architectures without AMX compile this file; runs_tiles() is false on them.
#include "core/base/error.h"
#include "kernels/cpu/tile_product.h"

namespace ds::cpu {

TileProducts::~TileProducts() = default;

void TileProducts::multiply(const TileProduct&) {
  raise(DS_ERROR_UNSUPPORTED, "this build has no products by tiles");
}

}  // namespace ds::cpu
