#pragma once
// Sums of squares over granules. To get the same bits as the CPU, the elements of a granule must be
// added in their order, so one thread adds up a whole granule. If each thread read its own granule
// from global memory, accesses would not be coalesced; therefore the block reads tiles with
// coalesced accesses and passes them through shared memory. Included by .cu files after device.h.
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/granules.h"

namespace ds::cuda {

// Computes n sums for each granule, in f64 and in the order of its elements. values(e, x) writes n
// values for element e to x; each sum adds up the squares of one of them. Calls keep(granule, sums)
// with the sums. `room` is shared memory of n * kGranuleRoom floats. The loads of `kRows` rows are
// in flight at once, except for f16, where each load is widened before the next.
template <int n, int kRows, typename Values, typename Keep>
DS_DEVICE void sum_squares(int64_t granules, int64_t granule, float* room, const Values& values,
                           const Keep& keep) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGranuleThreads;
  const int64_t here = granules - first < kGranuleThreads ? granules - first : kGranuleThreads;
  const int column = static_cast<int>(threadIdx.x % kGranuleTile),
            warp = static_cast<int>(threadIdx.x / kGranuleTile);
  double sums[n] = {};
  for (int64_t begin = 0; begin < granule; begin += kGranuleTile) {
    const int64_t width = granule - begin < kGranuleTile ? granule - begin : kGranuleTile;
    constexpr int kStep = static_cast<int>(kGranuleThreads) / kGranuleTile;
    for (int64_t row = warp; row < here; row += kRows * kStep) {
      if (column >= width) continue;
      float x[kRows][n];
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        if (row + j * kStep < here)
          values((first + row + j * kStep) * granule + begin + column, x[j]);
      }
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        if (row + j * kStep >= here) continue;
#pragma unroll
        for (int i = 0; i < n; ++i)
          room[i * kGranuleRoom + (row + j * kStep) * kGranuleRow + column] = x[j][i];
      }
    }
    __syncthreads();
    if (threadIdx.x < here) {
      for (int k = 0; k < width; ++k) {
#pragma unroll
        for (int i = 0; i < n; ++i) {
          const double x =
              static_cast<double>(room[i * kGranuleRoom + threadIdx.x * kGranuleRow + k]);
          sums[i] += x * x;
        }
      }
    }
    __syncthreads();
  }
  if (threadIdx.x < here) keep(first + threadIdx.x, sums);
}

}  // namespace ds::cuda
