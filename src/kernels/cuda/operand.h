#pragma once
#include <cstdint>

namespace ds::cuda {

// A tensor in the argument of an entry: the address of its first element, and its DType.
struct Operand {
  void* data;
  int32_t dtype;
  // Replaces padding, so that every byte of an argument is initialized.
  int32_t reserved;
};

// The maximum number of ranks whose values one thread adds up.
constexpr int64_t kMostSummed = 256;

}  // namespace ds::cuda
