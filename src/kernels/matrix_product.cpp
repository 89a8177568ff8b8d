// The matrix products that the three ops of a linear layer compute. A weight may be stored [O,I] or
// [I,O].
#include "kernels/matrix_product.h"

#include <fmt/core.h>

#include <span>
#include <string>

namespace ds {
namespace {

// Returns whether the weight is stored as [I,O] instead of [O,I].
bool transposed(const LinearOperands& c) { return c.attrs.integer_or("transposed", 0) != 0; }

}  // namespace

// y[n,O] = x[n,I] w[O,I]^T (+ b), or x w[I,O] (+ b).
MatrixProduct product_of_linear(const LinearOperands& c) {
  bool plain = transposed(c);
  int64_t rows = c.in[0].dims[0], inputs = c.in[0].dims[1], outputs = c.out[0].dims[1];
  MatrixShape shape{rows,    outputs, inputs, inputs,           plain ? outputs : inputs,
                    outputs, false,   !plain, c.in.size() == 3, c.in[0].dtype};
  return {shape, c.in[0].data, c.in[1].data, shape.bias ? c.in[2].data : nullptr, c.out[0].data};
}

// dx[n,I] = dy[n,O] w[O,I], or dy w[I,O]^T.
MatrixProduct product_of_linear_dx(const LinearOperands& c) {
  bool turned = transposed(c);
  int64_t rows = c.in[0].dims[0], outputs = c.in[0].dims[1], inputs = c.out[0].dims[1];
  MatrixShape shape{rows,   inputs, outputs, outputs, turned ? outputs : inputs,
                    inputs, false,  turned,  false,   c.in[0].dtype};
  return {shape, c.in[0].data, c.in[1].data, nullptr, c.out[0].data};
}

// dw[O,I] = dy[n,O]^T x[n,I], or dw[I,O] = x^T dy. The sum runs over rows.
MatrixProduct product_of_linear_dw(const LinearOperands& c) {
  const TensorView &a = c.in[transposed(c) ? 1 : 0], &b = c.in[transposed(c) ? 0 : 1];
  int64_t rows = a.dims[0], m = a.dims[1], n = b.dims[1];
  MatrixShape shape{m, n, rows, m, n, n, true, false, false, a.dtype};
  return {shape, a.data, b.data, nullptr, c.out[0].data};
}

std::string mixed_dtypes(const KernelQuery& query) {
  DType dtype = query.in[0];
  for (std::span<const DType> types : {query.in, query.out}) {
    for (DType other : types) {
      if (other != dtype)
        return fmt::format("{} mixed with {}", dtype_name(dtype), dtype_name(other));
    }
  }
  return "";
}

}  // namespace ds
