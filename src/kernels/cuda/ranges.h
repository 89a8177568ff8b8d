#pragma once
#include <cstdint>

namespace ds::cuda {

// NVTX ranges of the calling thread. A tool that watches the process names its library in
// NVTX_INJECTION64_PATH; without one these do nothing.
int32_t ranges();  // 1: a tool watches
void range_push(const char* name);
void range_pop();

}  // namespace ds::cuda
