#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/cuda/dim3.h"

// The device functions of src/kernels/cuda, compiled for this CPU. lane/shim.h explains how threads
// run.
namespace lane {

using ds::cuda::Dim3;

struct Entry {
  const char* name;
  size_t args_bytes;
  // Runs the whole grid before it returns. `seed` selects the order of threads; 0 means the order
  // of their indices. Throws std::runtime_error if not all threads of a block reach a barrier.
  void (*launch)(const void* args, Dim3 grid, Dim3 block, uint32_t shared_bytes, uint64_t seed);
};

// Returns the entry with this name, or null.
const Entry* find(std::string_view name);

}  // namespace lane
