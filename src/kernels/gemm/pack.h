#pragma once
#include <cstdint>

#include "core/base/dtype.h"

namespace ds::gemm {

// Packing puts a block of a matrix into panels of `width` (8 or 48) rows or columns: [panel][pair][width]
// words, each two neighbours along k. What lies beyond `count` columns or an odd `depth` is 0.

// The panel of `count` <= width vectors that are contiguous along k, `ld` elements apart.
void pack_along(const bf16* from, int64_t ld, int64_t count, int64_t depth, int64_t width, uint32_t* to);
// Panels of 48 of vectors that lie across k: element (k, j) at from[k * ld + j]. to: 64-byte aligned.
void pack_across_panels(const bf16* from, int64_t ld, int64_t count, int64_t depth, uint32_t* to);
// Four panels of 8 of the same, count <= 32.
void pack_across_4x8(const bf16* from, int64_t ld, int64_t count, int64_t depth, uint32_t* to);

}  // namespace ds::gemm
