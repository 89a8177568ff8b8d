#pragma once
#include <cstddef>
#include <cstdint>

#include "core/device/cpu_features.h"
#include "core/device/thread_team.h"
#include "kernels/matrix_product.h"

namespace ds::gemm {

// How a product is divided into tasks. Every element of c is one f32 sum over the steps of k in
// order, so the division does not change bits.
struct Cut {
  // The depth of a block of k, a multiple of Micro::step. The packed slab of b for one block stays
  // in the second-level cache.
  int64_t depth;
  // The number of columns of a slab, a multiple of the columns of a tile.
  int64_t width;
  // The number of rows of a task, a multiple of 32.
  int64_t rows;
};
// Chooses a cut whose buffers fit into the scratch of a thread. If the product is large enough,
// every thread gets several tasks.
Cut cut_product(const MatrixShape& shape, int threads, size_t scratch_bytes, Isa isa);

// c = op(a) op(b) (+ bias) of bf16 matrices, with the instructions of `isa`, avx512_bf16 or amx;
// the second form uses the instructions of effective_isa(). Allocates no memory. Each thread needs
// at least 64 KiB of scratch.
void multiply(const MatrixProduct& product, ThreadTeam& team, Isa isa);
void multiply(const MatrixProduct& product, ThreadTeam& team);

}  // namespace ds::gemm
