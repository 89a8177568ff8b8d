// NVTX is header-only: it opens the library of a profiler at the first call, so nothing is linked.
#include "kernels/cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace ds::cuda {

// A push returns a negative number if there is no profiler.
int32_t ranges() {
  static const bool watched = [] {
    const bool begun = nvtxRangePushA("libds") >= 0;
    if (begun) nvtxRangePop();
    return begun;
  }();
  return watched ? 1 : 0;
}

void range_push(const char* name) { nvtxRangePushA(name); }

void range_pop() { nvtxRangePop(); }

}  // namespace ds::cuda
