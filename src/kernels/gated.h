#pragma once
#include <cstdint>
#include <span>

#include "kernels/kernel.h"

namespace ds {

// Rows of the gate and of what it multiplies, for ops `glu` and `glu_dx`: two tensors, or the
// halves of one. `in` begins with the first of them.
template <typename T>
struct Gated {
  explicit Gated(std::span<const TensorView> in) {
    bool packed = in.size() == 1;
    stride = in[0].dims[1];
    width = packed ? stride / 2 : stride;
    gate = in[0].as<T>();
    up = packed ? gate + width : in[1].as<T>();
  }
  int64_t width, stride;  // elements of a row; between rows of gate and of up
  T *gate, *up;
};

}  // namespace ds
