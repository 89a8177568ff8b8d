#pragma once
#include <cstdint>

namespace ds::cuda {

// NVTX ranges of the calling thread. A profiler that watches the process names its library in
// NVTX_INJECTION64_PATH. ranges() returns 1 if a profiler is watching, and 0 if not; the other two
// functions then do nothing.
int32_t ranges();
void range_push(const char* name);
void range_pop();

}  // namespace ds::cuda
