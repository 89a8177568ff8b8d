#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/device/view.h"
#include "kernels/matrix_product.h"

namespace ds {

// The operands of the fused head, which computes its logits for one block of words at a time:
// x[rows,width], w[words,width], and room for the logits[rows,block] of one block.
struct LogitsHead {
  int64_t rows, width, words, block;
  DType dtype;
  const std::byte *x, *w;
  float* logits;

  LogitsHead(const TensorView& x, const TensorView& w, const TensorView& room)
      : rows(x.dims[0]),
        width(x.dims[1]),
        words(w.dims[0]),
        block(room.dims[1]),
        dtype(x.dtype),
        x(x.as<std::byte>()),
        w(w.as<std::byte>()),
        logits(room.as<float>()) {}

  // Return the number of words in the block that begins with word `first`, and the offset in bytes
  // and the address of the block's rows of w.
  int64_t count(int64_t first) const { return std::min(block, words - first); }
  int64_t weight_offset(int64_t first) const { return first * width * size_of(dtype); }
  const std::byte* weight(int64_t first) const { return w + weight_offset(first); }
  // Return the shape and the operands of the product that computes the block's logits in f32.
  MatrixShape logits_shape(int64_t first) const {
    return {rows, count(first), width, width, width, block, false, true, false, dtype, Store::wide};
  }
  MatrixProduct product(int64_t first) const {
    return {logits_shape(first), x, weight(first), nullptr, logits};
  }
};

}  // namespace ds
