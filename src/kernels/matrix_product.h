#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/kernel.h"

namespace ds {

// How a product's f32 sums are stored. `wide` and `added` leave c in f32, whatever the dtype, and
// take no bias.
enum class Store : int8_t {
  // c is rounded to the dtype.
  rounded,
  wide,
  // Each sum continues from the value of c.
  added
};

// c[m,n] = op(a)[m,k] op(b)[k,n] (+ bias[n]): one dtype, one rounding. A leading dimension is the
// distance between rows of a matrix as it is stored: a[m,k], or a[k,m] if transpose_a.
struct MatrixShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false, bias = false;
  DType dtype = DS_DTYPE_F32;
  Store store = Store::rounded;
  DType result() const { return store == Store::rounded ? dtype : DS_DTYPE_F32; }
  auto operator<=>(const MatrixShape&) const = default;
};

// One product with its operands.
struct MatrixProduct {
  MatrixShape shape;
  const void *a, *b, *bias;
  void* c;
};

// The operands, results and attributes of `linear`, `linear_dx` or `linear_dw`.
struct LinearOperands {
  std::span<const TensorView> in, out;
  const Attrs& attrs;
};
// Return the product that a launch of `linear`, `linear_dx` or `linear_dw` computes.
MatrixProduct product_of_linear(const LinearOperands& c);
MatrixProduct product_of_linear_dx(const LinearOperands& c);
MatrixProduct product_of_linear_dw(const LinearOperands& c);
inline MatrixProduct product_of_linear(const KernelContext& c) {
  return product_of_linear(LinearOperands{c.in, c.out, c.attrs});
}
inline MatrixProduct product_of_linear_dx(const KernelContext& c) {
  return product_of_linear_dx(LinearOperands{c.in, c.out, c.attrs});
}
inline MatrixProduct product_of_linear_dw(const KernelContext& c) {
  return product_of_linear_dw(LinearOperands{c.in, c.out, c.attrs});
}

// Returns why a product, which needs operands and results of a single dtype, refuses the query: the
// two dtypes that are mixed, or "".
std::string mixed_dtypes(const KernelQuery& query);

}  // namespace ds
