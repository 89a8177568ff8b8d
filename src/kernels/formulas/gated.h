#pragma once
#include <cstdint>
#include <span>

#include "kernels/kernel.h"

namespace ds {

// The gate of `glu` or `glu_dx` and the values `up` that it multiplies, or the gradients of both.
// `in` is two tensors, or one whose rows hold the gate, then up.
template <typename T>
struct Gated {
  explicit Gated(std::span<const TensorView> in) {
    bool packed = in.size() == 1;
    stride = in[0].dims[1];
    width = packed ? stride / 2 : stride;
    gate = in[0].as<T>();
    up = packed ? gate + width : in[1].as<T>();
  }
  // The number of elements in a row of gate or up, and the distance between rows in elements.
  int64_t width, stride;
  T *gate, *up;
};

}  // namespace ds
