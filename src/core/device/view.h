#pragma once
#include <cstdint>

#include "core/base/dtype.h"

namespace ds {

// A dense row-major tensor in the memory of a device. `data` is 64-byte aligned unless the tensor
// is a slice of another.
struct TensorView {
  void* data = nullptr;
  DType dtype = DS_DTYPE_NONE;
  int rank = 0;
  int64_t dims[4] = {1, 1, 1, 1};

  int64_t numel() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t bytes() const { return numel() * size_of(dtype); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace ds
