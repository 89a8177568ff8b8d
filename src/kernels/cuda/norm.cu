// Normalization of rows and its gradients, within the tolerances of kernels/accuracy.cpp.
//
// A row gets enough warps of a block to keep it in registers (row-inl.h), so that memory is read
// once: a warp for each 768 columns, at most eight warps. Columns after the first 6144 are read
// again for each use. If one warp is enough, a block has four rows. Sums over rows (dw, db) are
// computed first over chunks of 128 rows, then over the chunks. In both steps, eight parts of each
// sum are added up in parallel, each in order, and then the parts in order. There are no atomics,
// so the bits depend only on the shape, not on the number of processors. The operands of a row have
// one type (core/graph/ops/norm.cpp).
#include "kernels/cuda/device.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/row-inl.h"

namespace ds::cuda {
namespace {

// Eight elements each of dy, x and w, which have the same type.
template <int32_t type>
struct Fetched {
  Bits<type> dy, x, w;
};
// Two values for each of eight elements: b is the normalized value (x - mean) rstd, and a is its
// gradient, dy (w + offset), or dy if there is no weight.
struct Pair {
  Eight a, b;
};

// Returns the row of this thread. A block has blockDim.y rows, and uses barriers only if it has one
// row.
DS_DEVICE int64_t row_of() { return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; }

template <int32_t type>
DS_DEVICE Fetched<type> fetch_pair(const NormArgs& a, int64_t begin, int column, int n, bool wide,
                                   bool wide_w) {
  Fetched<type> f{};
  f.dy = fetch<type>(a.dy, begin + column, n, wide);
  f.x = fetch<type>(a.x, begin + column, n, wide);
  if (a.w.data) f.w = fetch<type>(a.w, column, n, wide_w);
  return f;
}
template <int32_t type>
DS_DEVICE Pair pair_of(const NormArgs& a, const Fetched<type>& f, float mean, float rstd) {
  Pair p{widened(f.dy), widened(f.x)};
  if (a.w.data) {
    const Eight w = widened(f.w);
#pragma unroll
    for (int k = 0; k < 8; ++k) p.a.v[k] *= w.v[k] + a.offset;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) p.b.v[k] = (p.b.v[k] - mean) * rstd;
  return p;
}

// Adds up eight columns of `count` rows: r, r + kColumnParts, and so on, in this order. All loads
// are started before the first is waited for. dy and x have the same type.
template <int32_t type, bool products, int count>
DS_DEVICE void add_rows(const ColumnArgs& a, int64_t r, int64_t column, int n, bool wide,
                        Eight& sum_w, Eight& sum_b) {
  Bits<type> g[count], x[count];
  float mean[count], rstd[count];
#pragma unroll
  for (int j = 0; j < count; ++j) {
    const int64_t row = r + j * kColumnParts;
    g[j] = fetch<type>(a.dy, row * a.width + column, n, wide);
    if constexpr (products) {
      x[j] = fetch<type>(a.x, row * a.width + column, n, wide);
      mean[j] = a.kind == 2 ? a.mean[row] : 0.0f;
      rstd[j] = a.rstd[row];
    }
  }
#pragma unroll
  for (int j = 0; j < count; ++j) {
    const Eight dy = widened(g[j]);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum_b.v[k] += dy.v[k];
    if constexpr (products) {
      const Eight normal = widened(x[j]);
#pragma unroll
      for (int k = 0; k < 8; ++k) sum_w.v[k] += dy.v[k] * ((normal.v[k] - mean[j]) * rstd[j]);
    }
  }
}
// Adds up every kColumnParts-th row from r on: dy, and if `products` is set, also dy times the
// normalized value.
template <int32_t type, bool products>
DS_DEVICE void add_part(const ColumnArgs& a, int64_t r, int64_t end, int64_t column, int n,
                        bool wide, Eight& sum_w, Eight& sum_b) {
  constexpr int kAtOnce = products ? 2 : 4;
#pragma unroll 1
  for (; r + (kAtOnce - 1) * kColumnParts < end; r += kAtOnce * kColumnParts)
    add_rows<type, products, kAtOnce>(a, r, column, n, wide, sum_w, sum_b);
#pragma unroll 1
  for (; r < end; r += kColumnParts)
    add_rows<type, products, 1>(a, r, column, n, wide, sum_w, sum_b);
}

}  // namespace

// y = (x - mean) rstd w + b. The variance needs a second pass over the registers: a sum of (x -
// mean)^2 does not suffer from cancellation as mean(x^2) - mean^2 would.
DS_BLOCK_KERNEL(layer_norm, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = row_of(), begin = row * a.width;
  const int width = static_cast<int>(a.width);
  if (row >= a.rows) return;
  const bool wide = begins_vector(a.x, begin), wide_y = begins_vector(a.y, begin),
             wide_w = begins_vector(a.w, 0) && begins_vector(a.b, 0);
  with_type(a.x.dtype, [&](auto given) {
    constexpr int32_t type = decltype(given)::value;
    const auto x_bits = [&](int column, int n) {
      return fetch<type>(a.x, begin + column, n, wide);
    };
    const auto x_at = [&](int column, int n) { return widened(x_bits(column, n)); };
    Eight x[kHeld];
    hold(width, x, x_bits, [](const Bits<type>& b) { return widened(b); });
    float sum = 0, squares = 0;
    walk(width, x, x_at,
         [&](int, int n, const Eight& e) { each_of(n, [&](int k) { sum += e.v[k]; }); });
    const float mean = block_sum(sum, room) * a.share;
    walk(width, x, x_at, [&](int, int n, const Eight& e) {
      each_of(n, [&](int k) { squares += (e.v[k] - mean) * (e.v[k] - mean); });
    });
    const float rstd = rsqrtf(block_sum(squares, room + kRoom) * a.share + a.eps);
    walk(width, x, x_at, [&](int column, int n, const Eight& e) {
      Eight y;
#pragma unroll
      for (int k = 0; k < 8; ++k) y.v[k] = (e.v[k] - mean) * rstd;
      if (a.w.data) {
        const Bits<type> w_bits = fetch<type>(a.w, column, n, wide_w),
                         b_bits = fetch<type>(a.b, column, n, wide_w);
        const Eight w = widened(w_bits), b = widened(b_bits);
#pragma unroll
        for (int k = 0; k < 8; ++k) y.v[k] = y.v[k] * w.v[k] + b.v[k];
      }
      put_eight<type>(a.y, begin + column, n, wide_y, y);
    });
    if (threadIdx.x == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  });
}

// dx = rstd (g - mean(g) - h mean(g h)), where g = dy w and h is the normalized value.
DS_BLOCK_KERNEL(layer_norm_dx, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = row_of(), begin = row * a.width;
  const int width = static_cast<int>(a.width);
  if (row >= a.rows) return;
  const bool wide = begins_vector(a.x, begin) && begins_vector(a.dy, begin),
             wide_y = begins_vector(a.y, begin), wide_w = begins_vector(a.w, 0);
  const float mean = a.mean[row], rstd = a.rstd[row];
  with_type(a.x.dtype, [&](auto given) {
    constexpr int32_t type = decltype(given)::value;
    const auto bits = [&](int column, int n) {
      return fetch_pair<type>(a, begin, column, n, wide, wide_w);
    };
    const auto pair = [&](const Fetched<type>& f) { return pair_of(a, f, mean, rstd); };
    const auto at = [&](int column, int n) { return pair(bits(column, n)); };
    Pair held[kHeld];
    hold(width, held, bits, pair);
    float sum_g = 0, sum_gh = 0;
    walk(width, held, at, [&](int, int n, const Pair& p) {
      each_of(n, [&](int k) {
        sum_g += p.a.v[k];
        sum_gh += p.a.v[k] * p.b.v[k];
      });
    });
    const float mean_g = block_sum(sum_g, room) * a.share,
                mean_gh = block_sum(sum_gh, room + kRoom) * a.share;
    walk(width, held, at, [&](int column, int n, const Pair& p) {
      Eight dx;
#pragma unroll
      for (int k = 0; k < 8; ++k) dx.v[k] = rstd * (p.a.v[k] - mean_g - p.b.v[k] * mean_gh);
      put_eight<type>(a.y, begin + column, n, wide_y, dx);
    });
  });
}

// y = x rstd (w + offset), where rstd = 1 / sqrt(mean(x^2) + eps).
DS_BLOCK_KERNEL(rms_norm, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = row_of(), begin = row * a.width;
  const int width = static_cast<int>(a.width);
  if (row >= a.rows) return;
  const bool wide = begins_vector(a.x, begin), wide_y = begins_vector(a.y, begin),
             wide_w = begins_vector(a.w, 0);
  with_type(a.x.dtype, [&](auto given) {
    constexpr int32_t type = decltype(given)::value;
    const auto x_bits = [&](int column, int n) {
      return fetch<type>(a.x, begin + column, n, wide);
    };
    const auto x_at = [&](int column, int n) { return widened(x_bits(column, n)); };
    Eight x[kHeld];
    hold(width, x, x_bits, [](const Bits<type>& b) { return widened(b); });
    float squares = 0;
    walk(width, x, x_at, [&](int, int n, const Eight& e) {
      each_of(n, [&](int k) { squares += e.v[k] * e.v[k]; });
    });
    const float rstd = rsqrtf(block_sum(squares, room) * a.share + a.eps);
    walk(width, x, x_at, [&](int column, int n, const Eight& e) {
      Eight y = widened(fetch<type>(a.w, column, n, wide_w));
#pragma unroll
      for (int k = 0; k < 8; ++k) y.v[k] = (y.v[k] + a.offset) * (e.v[k] * rstd);
      put_eight<type>(a.y, begin + column, n, wide_y, y);
    });
    if (threadIdx.x == 0) a.rstd[row] = rstd;
  });
}

// dx = rstd (g - h mean(g h)), where g = dy (w + offset) and h is the normalized value.
DS_BLOCK_KERNEL(rms_norm_dx, NormArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = row_of(), begin = row * a.width;
  const int width = static_cast<int>(a.width);
  if (row >= a.rows) return;
  const bool wide = begins_vector(a.x, begin) && begins_vector(a.dy, begin),
             wide_y = begins_vector(a.y, begin), wide_w = begins_vector(a.w, 0);
  const float rstd = a.rstd[row];
  with_type(a.x.dtype, [&](auto given) {
    constexpr int32_t type = decltype(given)::value;
    const auto bits = [&](int column, int n) {
      return fetch_pair<type>(a, begin, column, n, wide, wide_w);
    };
    const auto pair = [&](const Fetched<type>& f) { return pair_of(a, f, 0, rstd); };
    const auto at = [&](int column, int n) { return pair(bits(column, n)); };
    Pair held[kHeld];
    hold(width, held, bits, pair);
    float sum = 0;
    walk(width, held, at, [&](int, int n, const Pair& p) {
      each_of(n, [&](int k) { sum += p.a.v[k] * p.b.v[k]; });
    });
    const float mean = block_sum(sum, room) * a.share;
    walk(width, held, at, [&](int column, int n, const Pair& p) {
      Eight dx;
#pragma unroll
      for (int k = 0; k < 8; ++k) dx.v[k] = rstd * (p.a.v[k] - p.b.v[k] * mean);
      put_eight<type>(a.y, begin + column, n, wide_y, dx);
    });
  });
}

// Computes the sums of a chunk of rows, 256 columns per block. The rows are split into eight parts:
// part p has rows p, p + 8, and so on. A thread adds up eight columns of a part. In shared memory,
// column 8 t + k of a part is at index 32 k + t, so that the threads of a warp write to different
// banks.
DS_BLOCK_KERNEL(column_chunks, ColumnArgs, 256) {
  DS_SHARED(float, room);
  // blockIdx.x is the chunk, because a grid has at most 65,535 blocks in y.
  const int64_t chunk = blockIdx.x, first = static_cast<int64_t>(blockIdx.y) * 256;
  const int own = static_cast<int>(threadIdx.x % kWarp),
            part = static_cast<int>(threadIdx.x / kWarp);
  const int64_t column = first + 8 * own,
                end = (chunk + 1) * kChunk < a.rows ? (chunk + 1) * kChunk : a.rows;
  const int n = column < a.width ? at_most_eight(a.width - column) : 0;
  // If the width is not a multiple of 8, rows can have any alignment.
  const bool wide = a.width % 8 == 0 && begins_vector(a.dy, 0) && begins_vector(a.x, 0);
  Eight sum_w{}, sum_b{};
  with_type(a.dy.dtype, [&](auto given) {
    constexpr int32_t type = decltype(given)::value;
    if (a.kind == 0) {
      add_part<type, false>(a, chunk * kChunk + part, end, column, n, wide, sum_w, sum_b);
    } else {
      add_part<type, true>(a, chunk * kChunk + part, end, column, n, wide, sum_w, sum_b);
    }
  });
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int at = part * 256 + k * static_cast<int>(kWarp) + own;
    room[at] = a.kind == 0 ? sum_b.v[k] : sum_w.v[k];
    if (a.sums == 2) room[kColumnParts * 256 + at] = sum_b.v[k];
  }
  __syncthreads();
  // The column whose parts this thread adds up, which is at index threadIdx.x of each part.
  const int64_t mine = first + 8 * own + part;
  if (mine >= a.width) return;
  float* to = a.partial + chunk * a.sums * a.width + mine;
  for (int s = 0; s < a.sums; ++s) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kColumnParts; ++p) sum += room[(s * kColumnParts + p) * 256 + threadIdx.x];
    to[s * a.width] = sum;
  }
}
// Adds up the sums of the chunks. A block has 32 columns and splits the chunks into eight parts.
DS_BLOCK_KERNEL(column_sums, ColumnArgs, 256) {
  DS_SHARED(float, room);
  const int own = static_cast<int>(threadIdx.x % kWarp),
            part = static_cast<int>(threadIdx.x / kWarp);
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + own;
  float first = 0, second = 0;
  if (column < a.width) {
#pragma unroll 8
    for (int64_t c = part; c < a.chunks; c += kColumnParts) {
      const float* from = a.partial + c * a.sums * a.width + column;
      first += from[0];
      if (a.sums == 2) second += from[a.width];
    }
  }
  room[threadIdx.x] = first;
  room[256 + threadIdx.x] = second;
  __syncthreads();
  if (part != 0 || column >= a.width) return;
  for (int p = 1; p < kColumnParts; ++p) {
    first += room[p * static_cast<int>(kWarp) + own];
    second += room[256 + p * static_cast<int>(kWarp) + own];
  }
  put(a.dw, column, first);
  if (a.sums == 2) put(a.db, column, second);
}

// Computes dgates [rows, sums]: column `kind` of row r is the dot product of dy[r] and x[r]; the
// other columns are 0.
DS_BLOCK_KERNEL(scale_rows_dw, ColumnArgs, 256) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.width;
  float sum = 0;
  for (int64_t k = threadIdx.x; k < a.width; k += blockDim.x)
    sum += get(a.dy, begin + k) * get(a.x, begin + k);
  sum = block_sum(sum, room);
  for (int64_t e = threadIdx.x; e < a.sums; e += blockDim.x)
    put(a.dw, row * a.sums + e, e == a.kind ? sum : 0.0f);
}

}  // namespace ds::cuda
