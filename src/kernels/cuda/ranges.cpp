// NVTX of the toolkit is headers that open the library of a tool at their first call.
#include "kernels/cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace ds::cuda {

// A range that was not begun is negative.
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
