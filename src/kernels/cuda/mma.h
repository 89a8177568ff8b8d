#pragma once
// Functions for instructions that CUDA C++ does not offer as functions, such as those of tensor
// cores. nvcc compiles them; tests/cuda/lane/shim.h defines the same functions for g++.
//
// Fragments of matrices of 16-bit elements of `type`, two in a word (PTX ISA, "Matrix Fragments for
// mma.m16n8k16"). Thread 4 g + t has, in rows x columns,
//   A, 16 x 16: columns 2 t and 2 t + 1 of rows g and g + 8, then columns 2 t + 8 and 2 t + 9;
//   B, 16 x 8: rows 2 t and 2 t + 1 of column g, then rows 2 t + 8 and 2 t + 9;
//   C, 16 x 8: columns 2 t and 2 t + 1 of row g, then of row g + 8, in f32.
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cuda/entry.h"

namespace ds::cuda {

// exp(x) is 2 to the power of x * kLog2OfE.
constexpr float kLog2OfE = 1.4426950408889634f;

struct Words4 {
  uint32_t v[4];
};
struct Floats4 {
  float v[4];
};

#ifdef __CUDACC__
// Loads four 8 x 8 matrices from shared memory. Thread i passes the address of row i % 8 of matrix
// i / 8, a multiple of 16 bytes. Thread 4 g + t receives columns 2 t and 2 t + 1 of row g of each
// matrix or, if transposed, rows 2 t and 2 t + 1 of column g.
template <bool transposed>
DS_DEVICE Words4 load_matrices(const uint16_t* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  Words4 m;
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.v[0]), "=r"(m.v[1]), "=r"(m.v[2]), "=r"(m.v[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.v[0]), "=r"(m.v[1]), "=r"(m.v[2]), "=r"(m.v[3])
                 : "r"(at)
                 : "memory");
  }
  return m;
}
// Computes c += a b, where b0 and b1 are the two words of this thread's fragment of b.
template <int32_t type>
DS_DEVICE void add_product(Floats4& c, const Words4& a, uint32_t b0, uint32_t b1) {
  if constexpr (type == DS_DTYPE_BF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
        : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
        : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b0), "r"(b1));
  }
}
// Rounds two numbers to nearest even. The first goes to the lower half.
template <int32_t type>
DS_DEVICE uint32_t pack(float low, float high) {
  uint32_t both;
  if constexpr (type == DS_DTYPE_BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
DS_DEVICE float from_half(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
// Returns 2 to the power of x: exactly 1 for 0, and 0 for -inf. Subnormal results become 0.
DS_DEVICE float power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
// Returns 1 / x within its last bit, and 0 where the result would be subnormal.
DS_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Returns the smaller of a and b, or NaN if either is NaN.
DS_DEVICE float lesser(float a, float b) {
  float x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}
// Starts an asynchronous copy of 16 bytes from global to shared memory. If `there` is false, it
// writes zeros and reads nothing. Both addresses are multiples of 16.
DS_DEVICE void copy_ahead(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
               : "memory");
}
// Waits for the asynchronous copies of this thread. Other threads see the bytes after a barrier.
DS_DEVICE void await_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }
#endif

}  // namespace ds::cuda
