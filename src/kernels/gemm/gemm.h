#pragma once
#include <cstddef>
#include <cstdint>

#include "core/device/thread_team.h"
#include "kernels/cpu/features.h"
#include "kernels/matrix_product.h"

namespace ds::gemm {

// How a product is cut. Every element of c is one sum over steps of k in order, in f32, so the cut
// does not change bits.
struct Cut {
  int64_t depth;  // k of a block, whole steps: its packed slab of b stays in the second-level cache
  int64_t width;  // columns of a slab, whole tiles
  int64_t rows;   // rows of a task, a multiple of 32
};
Cut cut_product(const MatrixShape& shape, int threads, size_t scratch_bytes, Isa isa);

// c = op(a) op(b) (+ bias) of bf16 matrices, with the instructions of `isa`, avx512_bf16 or amx;
// without it those of effective_isa(). Takes nothing from the heap; scratch of at least 64 KiB a
// thread.
void multiply(const MatrixProduct& product, ThreadTeam& team, Isa isa);
void multiply(const MatrixProduct& product, ThreadTeam& team);

}  // namespace ds::gemm
