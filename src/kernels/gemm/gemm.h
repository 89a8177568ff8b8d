#pragma once
#include <cstdint>

#include "core/device/thread_team.h"
#include "kernels/matrix_product.h"

namespace ds::gemm {

// How a product is cut. Every element of c is one sum over k in order, in f32, so the cut does not change
// bits.
struct Cut {
  int64_t depth;  // k of a block, even: its packed slab of b stays in the second-level cache
  int64_t width;  // columns of a slab, a multiple of 48
  int64_t rows;   // rows of a task, a multiple of 32
};
Cut cut_product(const MatrixShape& shape, int threads, size_t scratch_bytes);

// c = op(a) op(b) (+ bias) of bf16 matrices. Takes nothing from the heap; scratch of at least 64 KiB a
// thread.
void multiply(const MatrixProduct& product, ThreadTeam& team);

}  // namespace ds::gemm
