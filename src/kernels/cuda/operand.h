#pragma once
#include <cstdint>

namespace ds::cuda {

// A tensor as an entry sees it: where its first element is, and its DType.
struct Operand {
  void* data;
  int32_t dtype;
  int32_t reserved;  // no byte of an argument is without a value
};

}  // namespace ds::cuda
