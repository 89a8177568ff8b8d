#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/cuda/dim3.h"

// The device functions of src/kernels/cuda, compiled for this CPU: see lane/shim.h for how threads
// run.
namespace lane {

using ds::cuda::Dim3;

struct Entry {
  const char* name;
  size_t args_bytes;
  // Runs the whole grid before it returns. `seed` chooses the order of threads; 0 is their numbers'
  // order. Throws std::runtime_error for a barrier that not all threads of a block meet.
  void (*launch)(const void* args, Dim3 grid, Dim3 block, uint32_t shared_bytes, uint64_t seed);
};

const Entry* find(std::string_view name);  // null: there is none

}  // namespace lane
