// Normalized rows and their gradients, within the tolerances of kernels/accuracy.cpp.
//
// A block has a row, and reads it once for each sum over it, from the device's cache after the first time.
// Sums over rows (dw, db) are made in fixed chunks of 128 rows, then over chunks in their order: no atomics,
// and bits that depend on the shape alone, never on how many processors there are.
#include "kernels/cuda/device.h"
#include "kernels/cuda/norm.h"

namespace ds::cuda {
namespace {

DS_DEVICE float weight(const NormArgs& a, int64_t k) { return a.w.data ? get(a.w, k) + a.offset : 1.0f; }

// Calls f(k) for this thread's columns of the row.
template <typename F>
DS_DEVICE void columns(int64_t width, const F& f) {
  for (int64_t k = threadIdx.x; k < width; k += blockDim.x) f(k);
}

}  // namespace

DS_BLOCK_KERNEL(layer_norm, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.width;
  const float count = static_cast<float>(a.width);
  float sum = 0, squares = 0;
  columns(a.width, [&](int64_t k) { sum += get(a.x, begin + k); });
  const float mean = block_sum(sum, room) / count;
  columns(a.width, [&](int64_t k) {
    const float centered = get(a.x, begin + k) - mean;
    squares += centered * centered;
  });
  const float rstd = 1 / sqrtf(block_sum(squares, room + kRoom) / count + a.eps);
  columns(a.width, [&](int64_t k) {
    const float normal = (get(a.x, begin + k) - mean) * rstd;
    put(a.y, begin + k, a.w.data ? normal * get(a.w, k) + get(a.b, k) : normal);
  });
  if (threadIdx.x == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

DS_BLOCK_KERNEL(layer_norm_dx, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.width;
  const float count = static_cast<float>(a.width), mean = a.mean[row], rstd = a.rstd[row];
  float sum_g = 0, sum_gh = 0;
  columns(a.width, [&](int64_t k) {
    const float g = get(a.dy, begin + k) * weight(a, k), h = (get(a.x, begin + k) - mean) * rstd;
    sum_g += g;
    sum_gh += g * h;
  });
  sum_g = block_sum(sum_g, room);
  sum_gh = block_sum(sum_gh, room + kRoom);
  columns(a.width, [&](int64_t k) {
    const float g = get(a.dy, begin + k) * weight(a, k), h = (get(a.x, begin + k) - mean) * rstd;
    put(a.y, begin + k, rstd * (g - sum_g / count - h * (sum_gh / count)));
  });
}

DS_BLOCK_KERNEL(rms_norm, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.width;
  float squares = 0;
  columns(a.width, [&](int64_t k) { squares += get(a.x, begin + k) * get(a.x, begin + k); });
  const float rstd = 1 / sqrtf(block_sum(squares, room) / static_cast<float>(a.width) + a.eps);
  columns(a.width, [&](int64_t k) { put(a.y, begin + k, get(a.x, begin + k) * rstd * weight(a, k)); });
  if (threadIdx.x == 0) a.rstd[row] = rstd;
}

DS_BLOCK_KERNEL(rms_norm_dx, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.width;
  const float rstd = a.rstd[row];
  float sum = 0;
  columns(a.width,
          [&](int64_t k) { sum += get(a.dy, begin + k) * weight(a, k) * (get(a.x, begin + k) * rstd); });
  sum = block_sum(sum, room);
  columns(a.width, [&](int64_t k) {
    const float g = get(a.dy, begin + k) * weight(a, k), h = get(a.x, begin + k) * rstd;
    put(a.y, begin + k, rstd * (g - h * (sum / static_cast<float>(a.width))));
  });
}

DS_LOOP_KERNEL(column_chunks, ColumnArgs) {
  // Chunks of rows are in x, which has no limit of 65,535.
  const int64_t column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x, chunk = blockIdx.x;
  if (column >= a.width) return;
  const int64_t end = (chunk + 1) * kChunk < a.rows ? (chunk + 1) * kChunk : a.rows;
  float sum_w = 0, sum_b = 0;
  for (int64_t r = chunk * kChunk; r < end; ++r) {
    const float g = get(a.dy, r * a.width + column);
    sum_b += g;
    if (a.kind == 0) continue;
    const float x = get(a.x, r * a.width + column);
    sum_w += g * ((a.kind == 2 ? x - a.mean[r] : x) * a.rstd[r]);
  }
  float* to = a.partial + chunk * a.sums * a.width;
  to[column] = a.kind == 0 ? sum_b : sum_w;
  if (a.sums == 2) to[a.width + column] = sum_b;
}
DS_LOOP_KERNEL(column_sums, ColumnArgs) {
  const int64_t column = thread_number();
  if (column >= a.width) return;
  float first = 0, second = 0;
  for (int64_t c = 0; c < a.chunks; ++c) {
    const float* from = a.partial + c * a.sums * a.width + column;
    first += from[0];
    if (a.sums == 2) second += from[a.width];
  }
  put(a.dw, column, first);
  if (a.sums == 2) put(a.db, column, second);
}

// dgates [rows, sums]: the dot of dy[r] and x[r] in column `kind`, else 0.
DS_BLOCK_KERNEL(scale_rows_dw, ColumnArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.width;
  float sum = 0;
  columns(a.width, [&](int64_t k) { sum += get(a.dy, begin + k) * get(a.x, begin + k); });
  sum = block_sum(sum, room);
  columns(a.sums, [&](int64_t e) { put(a.dw, row * a.sums + e, e == a.kind ? sum : 0.0f); });
}

}  // namespace ds::cuda
