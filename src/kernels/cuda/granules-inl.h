#pragma once
// Included by .cu files, behind device.h.
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/granules.h"

namespace ds::cuda {

// Adds up, in f64 and in the order of elements, the squares of `n` values of each element of a
// granule: values(e, x) gives those of element e, keep(granule, sums) takes the sums. Values come
// through `room`, shared memory of n kGranuleRoom floats, so that threads that are neighbours read
// addresses that are. Values of `kRows` rows are asked for before those of the first are there; of
// f16 they are widened as they come.
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
