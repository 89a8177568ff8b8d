#pragma once
// Rows that a block walks through by eights of neighbouring columns: thread t has columns 8 t to 8 t + 7 of
// every 8 blockDim.x. Which thread has a column, and so every sum, depends on the width and the block alone;
// where a row begins only decides how wide its loads are. Included by .cu files only.
#include <cstdint>

#include "kernels/cuda/device.h"

namespace ds::cuda {

// Whether element i begins a vector of 16 bytes.
DS_DEVICE bool begins_vector(const Operand& o, int64_t i) {
  const int64_t bytes = i * (o.dtype == DS_DTYPE_F32 ? 4 : 2);
  return (reinterpret_cast<uint64_t>(o.data) + static_cast<uint64_t>(bytes)) % 16 == 0;
}
DS_DEVICE int at_most_eight(int64_t count) { return count < 8 ? static_cast<int>(count) : 8; }
// First column of this thread's eight number j.
DS_DEVICE int column_of(int j) {
  return 8 * (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x));
}

constexpr int kHeld = 3;  // eights of a thread that stay in registers; wider rows are read again

// kept[j] = load(column, n) of this thread's first eights of a row; n of them exist.
template <typename T, typename Load>
DS_DEVICE void hold(int width, T (&kept)[kHeld], const Load& load) {
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int column = column_of(j);
    if (column < width) kept[j] = load(column, at_most_eight(width - column));
  }
}
// f(column, n, what load gave) for every eight of this thread.
template <typename T, typename Load, typename F>
DS_DEVICE void walk(int width, const T (&kept)[kHeld], const Load& load, const F& f) {
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int column = column_of(j);
    if (column < width) f(column, at_most_eight(width - column), kept[j]);
  }
#pragma unroll 1
  for (int column = column_of(kHeld); column < width; column += 8 * static_cast<int>(blockDim.x)) {
    const int n = at_most_eight(width - column);
    f(column, n, load(column, n));
  }
}
// f(k) for those of eight elements that exist.
template <typename F>
DS_DEVICE void each_of(int n, const F& f) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (k < n) f(k);
  }
}

}  // namespace ds::cuda
