// Losses and the softmax of rows, within the tolerances of kernels/accuracy.cpp.
//
// A launch has all logits (cross_entropy), or a block of words (linear_cross_entropy without kept
// logits): `fold` merges these logits into the softmax of their rows. The largest logit and the sum
// of the other exponentials are stored separately, as kernels/formulas/row_softmax.h explains, so
// that nothing cancels when one probability is nearly 1. A block of threads processes one row. The
// losses of the rows are added up in f64 by one block: each thread adds its rows in order, then a
// fixed tree adds up the threads.
#include "kernels/cuda/device.h"
#include "kernels/cuda/loss.h"
#include "kernels/cuda/row-inl.h"

namespace ds::cuda {
namespace {

DS_DEVICE bool counts(const LossArgs& a, int64_t row) { return a.targets[row] >= 0; }

// Merges the softmax of two parts of a row: the whole sum of the part with the smaller maximum is
// scaled and added to the rest of the other part. The function is symmetric to the bit, so all
// threads of a warp get the same result. A maximum is never NaN; a part whose elements are all -inf
// or NaN has the maximum -inf and contributes only its NaN.
DS_DEVICE RowStats joined(const RowStats& a, const RowStats& b) {
  const bool first = a.top > b.top;
  const float top = first ? a.top : b.top, low = first ? b.top : a.top;
  const float rest = first ? a.rest : b.rest, more = first ? b.rest : a.rest;
  if (low == -INFINITY) return {top, rest + more};
  const float share = expf(low - top);
  return {top, fused(more, share, rest) + share};
}
// Returns exp(x) for a difference x of logits. With 16-bit logits it uses the instruction for
// powers of 2, whose absolute error is at most 2^-21 for x <= 0, and whose relative error is 2^-19
// at x = -20.
template <int32_t type>
DS_DEVICE float exp_of(float x) {
  if constexpr (type == DS_DTYPE_F32) return expf(x);
  return power_of_2(x * kLog2OfE);
}
// Merges groups of eight elements into a thread's part; elements that do not exist are -inf. Each
// element is compared with the largest so far, and the smaller of the two is added to the rest. So
// exactly one maximum is left out of the rest, without divergent branches. A NaN is added to the
// rest.
template <int32_t type, int eights>
DS_DEVICE void join(RowStats& s, Eight (&x)[eights]) {
  const float old = s.top;
#pragma unroll
  for (int j = 0; j < eights; ++j) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float given = x[j].v[k];
      x[j].v[k] = lesser(given, s.top);
      s.top = fmaxf(given, s.top);
    }
  }
  const float base = s.top == -INFINITY ? 0.0f : s.top;
  if (old != s.top) s.rest *= exp_of<type>(old - s.top);
#pragma unroll
  for (int j = 0; j < eights; ++j) {
#pragma unroll
    for (int k = 0; k < 8; ++k) s.rest += exp_of<type>(x[j].v[k] - base);
  }
}
// Returns the softmax of this thread's part of elements [begin, begin + count). The loads of
// `at_once` groups are in flight at once.
template <int32_t type, int at_once>
DS_DEVICE RowStats part_of(const Operand& logits, int64_t begin, int count) {
  const bool wide = begins_vector(logits, begin);
  const int step = column_of(1) - column_of(0);
  RowStats s{-INFINITY, 0};
  int column = column_of(0);
#pragma unroll 1
  for (; column + (at_once - 1) * step + 8 <= count; column += at_once * step) {
    Bits<type> b[at_once];
    fetch_each(logits, begin + column, step, wide, b);
    Eight x[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) x[j] = widened(b[j]);
    join<type>(s, x);
  }
#pragma unroll 1
  for (; column < count; column += step) {
    const int n = at_most_eight(count - column);
    Eight x[1] = {widened(fetch<type>(logits, begin + column, n, wide))};
#pragma unroll
    for (int k = 0; k < 8; ++k) x[0].v[k] = k < n ? x[0].v[k] : -INFINITY;
    join<type>(s, x);
  }
  return s;
}

// Returns the softmax of elements [begin, begin + count) to every thread of the block. `room` is
// shared memory of 2 kRoom floats.
template <int at_once>
DS_DEVICE RowStats stats_of(const Operand& logits, int64_t begin, int64_t count, float* room) {
  RowStats s;
  with_type(logits.dtype, [&](auto type) {
    s = part_of<decltype(type)::value, at_once>(logits, begin, static_cast<int>(count));
  });
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    const float top = __shfl_xor_sync(kAll, s.top, step),
                rest = __shfl_xor_sync(kAll, s.rest, step);
    s = joined(s, {top, rest});
  }
  const unsigned warps = blockDim.x / kWarp;
  if (warps == 1) return s;
  if (threadIdx.x % kWarp == 0) {
    room[threadIdx.x / kWarp] = s.top;
    room[kRoom + threadIdx.x / kWarp] = s.rest;
  }
  __syncthreads();
  s = {room[0], room[kRoom]};
  for (unsigned w = 1; w < warps; ++w) s = joined(s, {room[w], room[kRoom + w]});
  return s;
}

// The formulas of RowLoss in kernels/formulas/row_loss.h: cross-entropy, label smoothing and
// z-loss.
DS_DEVICE float log_sum(const RowStats& s) { return s.top + log1pf(s.rest); }
DS_DEVICE float loss_of(const LossArgs& a, const RowStats& s, float logit, float spread) {
  float loss = log1pf(s.rest) + (s.top - logit);
  if (a.smoothing != 0) {
    const float even = log1pf(s.rest) + spread / static_cast<float>(a.all_words);
    loss = (1 - a.smoothing) * loss + a.smoothing * even;
  }
  return a.z == 0 ? loss : loss + a.z * log_sum(s) * log_sum(s);
}
// The gradient of the loss with respect to a logit other than the target's is `factor` exp(logit -
// top) - `less`. `growth` is 2 z L, which the z-loss contributes.
struct Slopes {
  float factor, less, growth;
};
DS_DEVICE Slopes slopes_of(const LossArgs& a, const RowStats& s, float scale) {
  const float growth = a.z == 0 ? 0.0f : 2 * a.z * log_sum(s);
  return {scale * (1 + growth) / (1 + s.rest),
          scale * (a.smoothing / static_cast<float>(a.all_words)), growth};
}
// Returns the gradient with respect to the target's logit. Without smoothing and z-loss it is p -
// 1, computed as minus the sum of the other probabilities, so that it keeps its precision when p is
// nearly 1.
DS_DEVICE float slope_of_target(const LossArgs& a, const RowStats& s, const Slopes& of, float logit,
                                float scale) {
  const float miss = (s.rest - expm1f(logit - s.top)) / (1 + s.rest);
  return scale * (a.smoothing + of.growth * (1 - miss) - miss) - of.less;
}

}  // namespace

// Merges a block of words into the softmax of its rows, and stores the logit of the target if it is
// in the block. One block of threads processes a row.
DS_BLOCK_KERNEL(fold, LossArgs, kLossThreads) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.stride;
  const RowStats own = stats_of<4>(a.logits, begin, a.words, room);
  float spread = 0;
  if (a.spread) {
    const int words = static_cast<int>(a.words);
    const bool wide = begins_vector(a.logits, begin);
    for (int j = 0, v = column_of(0); v < words; v = column_of(++j)) {
      const int n = at_most_eight(words - v);
      const Eight x = load(a.logits, begin + v, n, wide);
      each_of(n, [&](int k) { spread += own.top - x.v[k]; });
    }
    spread = block_sum(spread, room + 2 * kRoom);
  }
  if (a.padded) {
    for (int64_t v = a.words + threadIdx.x; v < a.stride; v += blockDim.x)
      put(a.logits, begin + v, 0.0f);
  }
  if (threadIdx.x != 0) return;
  RowStats s = own;
  if (!a.begins) {
    const RowStats old = a.stats[row];
    s = joined(own, old);
    // Each spread is relative to the maximum of its own words. If the joint maximum is larger, the
    // difference is added once per word: here for the earlier words, and below for the words of
    // this block.
    if (a.spread) spread += a.spread[row] + static_cast<float>(a.first) * (s.top - old.top);
  }
  if (a.spread) a.spread[row] = spread + static_cast<float>(a.words) * (s.top - own.top);
  a.stats[row] = s;
  const int64_t column = a.targets[row] - a.first;
  if (counts(a, row) && column >= 0 && column < a.words)
    a.target_logit[row] = get(a.logits, begin + column);
}

// Computes the loss of each row, as the result or as a term of the mean or sum.
DS_LOOP_KERNEL(loss_terms, LossArgs) {
  const int64_t row = thread_number();
  if (row >= a.rows) return;
  float loss = 0;
  if (counts(a, row))
    loss = loss_of(a, a.stats[row], a.target_logit[row], a.spread ? a.spread[row] : 0.0f);
  if (a.each) {
    a.loss[row] = loss;
  } else {
    a.terms[row] = static_cast<double>(loss);
  }
}
// One block computes the mean of the terms over rows with a target, or their sum.
DS_BLOCK_KERNEL(loss_mean, LossArgs, kLossThreads) {
  DS_SHARED(double, room);
  double sum = 0, counted = 0;
  for (int64_t r = threadIdx.x; r < a.rows; r += blockDim.x) {
    sum += a.terms[r];
    counted += counts(a, r) ? 1.0 : 0.0;
  }
  sum = block_sum(sum, room);
  counted = block_sum(counted, room + kRoom);
  if (threadIdx.x != 0) return;
  *a.loss = counted == 0 ? 0.0f : static_cast<float>(a.mean ? sum / counted : sum);
}
// One block computes the common factor of the gradients of all rows.
DS_BLOCK_KERNEL(loss_scale, LossArgs, kLossThreads) {
  DS_SHARED(double, room);
  double counted = 0;
  for (int64_t r = threadIdx.x; r < a.rows; r += blockDim.x) counted += counts(a, r) ? 1.0 : 0.0;
  counted = block_sum(counted, room);
  if (threadIdx.x != 0) return;
  *a.scale = counted == 0 ? 0.0f : a.mean ? *a.dloss / static_cast<float>(counted) : *a.dloss;
}
// Block (row, part) writes the gradients of one part of a row's logits. blockIdx.x is the row,
// because a grid has at most 65,535 blocks in y.
DS_LOOP_KERNEL(logit_gradients, LossArgs) {
  const int64_t row = blockIdx.x, from = row * a.stride, to = row * a.to_stride;
  const int words = static_cast<int>(a.words),
            columns = a.padded ? static_cast<int>(a.to_stride) : words,
            step = static_cast<int>(8 * gridDim.y * blockDim.x);
  const bool wide = begins_vector(a.logits, from), wide_to = begins_vector(a.to, to);
  int v = static_cast<int>(8 * (blockIdx.y * blockDim.x + threadIdx.x));
  if (!counts(a, row)) {
    for (; v < columns; v += step)
      store(a.to, to + v, at_most_eight(columns - v), wide_to, Eight{});
    return;
  }
  const int64_t target = a.targets[row] - a.first;
  const RowStats s = a.stats[row];
  const float scale = a.scale ? *a.scale : a.dloss[row];
  const Slopes slopes = slopes_of(a, s, scale);
  with_type(a.logits.dtype, [&](auto given) {
    constexpr int32_t type = decltype(given)::value;
    // Gradients may overwrite the logits. That is safe because a thread writes only elements that
    // it has read itself, and the target's logit is read before its group is stored.
    const auto gradients = [&](int column, int n, const Bits<type>& b) {
      Eight x = widened(b);
#pragma unroll
      for (int k = 0; k < 8; ++k)
        x.v[k] = k < n ? fused(slopes.factor, exp_of<type>(x.v[k] - s.top), -slopes.less) : 0.0f;
      if (target >= column && target < column + n) {
        const float slope = slope_of_target(a, s, slopes, get(a.logits, from + target), scale);
#pragma unroll
        for (int k = 0; k < 8; ++k) x.v[k] = column + k == target ? slope : x.v[k];
      }
      const int kept = at_most_eight(columns - column);
      with_type(a.to.dtype, [&](auto to_type) {
        put_eight<decltype(to_type)::value>(a.to, to + column, kept, wide_to, x);
      });
    };
    constexpr int kAtOnce = 2;
#pragma unroll 1
    for (; v + (kAtOnce - 1) * step + 8 <= words; v += kAtOnce * step) {
      Bits<type> b[kAtOnce];
      fetch_each(a.logits, from + v, step, wide, b);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) gradients(v + j * step, 8, b[j]);
    }
#pragma unroll 1
    for (; v < columns; v += step) {
      const int n = v < words ? at_most_eight(words - v) : 0;
      gradients(v, n, fetch<type>(a.logits, from + v, n, wide));
    }
  });
}

// Computes the number of rows that have a target, as a float.
DS_BLOCK_KERNEL(count_targets, LossArgs, kLossThreads) {
  DS_SHARED(double, room);
  double counted = 0;
  for (int64_t r = threadIdx.x; r < a.rows; r += blockDim.x) counted += counts(a, r) ? 1.0 : 0.0;
  counted = block_sum(counted, room);
  if (threadIdx.x == 0) *a.loss = static_cast<float>(counted);
}

// A block of threads processes a row. If `seq` is not 0, the softmax is causal: it is over the
// columns up to the row's position in its sequence, and the others become 0.
DS_BLOCK_KERNEL(softmax, SoftmaxArgs, kLossThreads) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.width;
  int64_t seen = a.width;
  if (a.seq != 0) {
    const int64_t place = blockIdx.x % static_cast<uint32_t>(a.seq);
    if (place + 1 < a.width) seen = place + 1;
  }
  const RowStats s = stats_of<2>(a.x, begin, seen, room);
  const float share = 1 / (1 + s.rest);
  for (int64_t v = threadIdx.x; v < a.width; v += blockDim.x) {
    float y = 0;
    if (v < seen) {
      const float x = get(a.x, begin + v);
      y = a.log ? -(log1pf(s.rest) + (s.top - x)) : expf(x - s.top) * share;
    }
    put(a.y, begin + v, y);
  }
}
// dx = y (dy - sum of dy y) or, for the logarithm, dy - exp(y) sum of dy.
DS_BLOCK_KERNEL(softmax_dx, SoftmaxArgs, kLossThreads) {
  DS_SHARED(float, room);
  const int64_t begin = blockIdx.x * a.width;
  float sum = 0;
  for (int64_t v = threadIdx.x; v < a.width; v += blockDim.x) {
    const float dy = get(a.dy, begin + v);
    sum += a.log ? dy : dy * get(a.x, begin + v);
  }
  sum = block_sum(sum, room);
  for (int64_t v = threadIdx.x; v < a.width; v += blockDim.x) {
    const float dy = get(a.dy, begin + v), y = get(a.x, begin + v);
    put(a.y, begin + v, a.log ? dy - expf(y) * sum : y * (dy - sum));
  }
}

// mse_partial and mse_mean compute the mean of squared differences: the first the sums of
// kMeanShare elements each, the second the sum of these.
DS_BLOCK_KERNEL(mse_partial, MeanArgs, kLossThreads) {
  DS_SHARED(double, room);
  const int64_t begin = blockIdx.x * kMeanShare,
                end = begin + kMeanShare < a.count ? begin + kMeanShare : a.count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const float difference = get(a.x, i) - get(a.target, i);
    sum += static_cast<double>(difference * difference);
  }
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) a.partial[blockIdx.x] = sum;
}
DS_BLOCK_KERNEL(mse_mean, MeanArgs, kLossThreads) {
  DS_SHARED(double, room);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < a.blocks; i += blockDim.x) sum += a.partial[i];
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) *a.loss = static_cast<float>(sum / static_cast<double>(a.count));
}

// A matrix product. A block of 64 threads computes a tile of 32 x 32 elements of c, 4 x 4 per
// thread, with sums in f32. This kernel is used on machines without cuBLASLt, in tests, and for
// products for which cuBLASLt has no algorithm.
DS_BLOCK_KERNEL(product, ProductArgs, 64) {
  DS_SHARED(float, tile_a);
  constexpr int kPitch = kProductTile + 1;
  float* tile_b = tile_a + kProductTile * kPitch;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kProductTile,
                column = static_cast<int64_t>(blockIdx.y) * kProductTile;
  const int tr = static_cast<int>(threadIdx.x / 8) * 4, tc = static_cast<int>(threadIdx.x % 8) * 4;
  float sum[4][4] = {};
  for (int64_t begin = 0; begin < a.k; begin += kProductTile) {
#pragma unroll 4
    for (int e = static_cast<int>(threadIdx.x); e < kProductTile * kProductTile; e += 64) {
      // Reads are coalesced, whether the matrix is transposed or not.
      const int high = e / kProductTile, low = e % kProductTile;
      const int am = a.transpose_a ? low : high, ak = a.transpose_a ? high : low;
      const int bn = a.transpose_b ? high : low, bk = a.transpose_b ? low : high;
      const int64_t m = row + am, n = column + bn, ka = begin + ak, kb = begin + bk;
      tile_a[am * kPitch + ak] =
          m < a.m && ka < a.k ? get(a.a, a.transpose_a ? ka * a.lda + m : m * a.lda + ka) : 0.0f;
      tile_b[bk * kPitch + bn] =
          n < a.n && kb < a.k ? get(a.b, a.transpose_b ? n * a.ldb + kb : kb * a.ldb + n) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kProductTile; ++k) {
      float x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = tile_a[(tr + i) * kPitch + k], y[i] = tile_b[k * kPitch + tc + i];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fused(x[i], y[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t m = row + tr + i, n = column + tc + j;
      if (m >= a.m || n >= a.n) continue;
      float x = sum[i][j];
      if (a.bias.data) x += get(a.bias, n);
      if (a.added) x += get(a.c, m * a.ldc + n);
      put(a.c, m * a.ldc + n, x);
    }
  }
}

}  // namespace ds::cuda
