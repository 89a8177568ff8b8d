#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/kernel.h"

namespace ds {

// How a product's f32 sums are stored. With `wide` and `added`, c is f32 whatever the dtype is, and
// a bias is not supported.
enum class Store : int8_t {
  // c is rounded to the dtype.
  rounded,
  // c is overwritten with the f32 sums.
  wide,
  // Each sum continues from the value of c.
  added
};

// The shape of the product c[m,n] = op(a)[m,k] op(b)[k,n] (+ bias[n]). All operands have one dtype,
// and each element is rounded once. A leading dimension is the distance between rows of a matrix as
// it is stored: a[m,k], or a[k,m] if transpose_a.
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

// Returns "" if all operands and results of the query have the same dtype, as a product needs.
// Otherwise returns a refusal that names two of the dtypes.
std::string mixed_dtypes(const KernelQuery& query);

}  // namespace ds
