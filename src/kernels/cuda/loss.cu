// Losses, within the tolerances of kernels/accuracy.cpp.
//
// Logits come whole (cross_entropy) or by blocks of words (linear_cross_entropy, whose logits are not kept):
// `fold` joins a block to the softmax of its rows, whose parts stay apart as kernels/row_softmax.h explains,
// so that nothing cancels where the model is nearly sure. A block of threads has a row. Terms of rows are
// added up in f64 by one block, each thread its share in order, then threads by a fixed tree.
#include "kernels/cuda/device.h"
#include "kernels/cuda/loss.h"

namespace ds::cuda {
namespace {

DS_DEVICE bool counts(const LossArgs& a, int64_t row) { return a.targets[row] >= 0; }

}  // namespace

DS_BLOCK_KERNEL(fold, LossArgs, kLossThreads) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, begin = row * a.stride;
  float top = -INFINITY;
  for (int64_t v = threadIdx.x; v < a.words; v += blockDim.x) {
    const float x = get(a.logits, begin + v);
    top = x > top || x != x ? x : top;
  }
  top = over_block<Larger>(top, room);
  // Exactly one of the largest is left out: its term is 1.
  int64_t place = a.words;
  for (int64_t v = threadIdx.x; v < a.words && place == a.words; v += blockDim.x) {
    if (get(a.logits, begin + v) == top) place = v;
  }
  const auto first = static_cast<int64_t>(
      -over_block<Larger>(static_cast<double>(-place), reinterpret_cast<double*>(room + kRoom)));
  float rest = 0;
  for (int64_t v = threadIdx.x; v < a.words; v += blockDim.x) {
    if (v != first) rest += expf(get(a.logits, begin + v) - top);
  }
  rest = block_sum(rest, room + 3 * kRoom);
  if (threadIdx.x != 0) return;
  RowStats s{top, rest};
  if (!a.begins) {
    const RowStats old = a.stats[row];
    // The smaller top's whole sum joins the rest of the larger one.
    if (top > old.top) {
      s = {top, rest + (1 + old.rest) * expf(old.top - top)};
    } else {
      s = {old.top, old.rest + (1 + rest) * expf(top - old.top)};
    }
  }
  a.stats[row] = s;
  const int64_t column = a.targets[row] - a.first;
  if (counts(a, row) && column >= 0 && column < a.words) a.target_logit[row] = get(a.logits, begin + column);
}

DS_LOOP_KERNEL(loss_terms, LossArgs) {
  const int64_t row = thread_number();
  if (row >= a.rows) return;
  const RowStats s = a.stats[row];
  a.terms[row] = counts(a, row) ? static_cast<double>(log1pf(s.rest) + (s.top - a.target_logit[row])) : 0.0;
}
// One block.
DS_BLOCK_KERNEL(loss_mean, LossArgs, kLossThreads) {
  DS_SHARED(double, room);
  double sum = 0, counted = 0;
  for (int64_t r = threadIdx.x; r < a.rows; r += blockDim.x) {
    sum += a.terms[r];
    counted += counts(a, r) ? 1.0 : 0.0;
  }
  sum = block_sum(sum, room);
  counted = block_sum(counted, room + kRoom);
  if (threadIdx.x == 0) *a.loss = counted == 0 ? 0.0f : static_cast<float>(sum / counted);
}
// One block: what multiplies every row's gradient.
DS_BLOCK_KERNEL(loss_scale, LossArgs, kLossThreads) {
  DS_SHARED(double, room);
  double counted = 0;
  for (int64_t r = threadIdx.x; r < a.rows; r += blockDim.x) counted += counts(a, r) ? 1.0 : 0.0;
  counted = block_sum(counted, room);
  if (threadIdx.x == 0) *a.scale = counted == 0 ? 0.0f : *a.dloss / static_cast<float>(counted);
}
// A row of blocks for each row of logits.
DS_LOOP_KERNEL(logit_gradients, LossArgs) {
  const int64_t row = blockIdx.y;
  const RowStats s = a.stats[row];
  const bool counted = counts(a, row);
  const float scale = *a.scale, sum = 1 + s.rest;
  for (int64_t v = thread_number(); v < a.words; v += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const float logit = get(a.logits, row * a.stride + v);
    const bool target = a.first + v == a.targets[row];
    const float p = target ? -(s.rest - expm1f(logit - s.top)) / sum : expf(logit - s.top) / sum;
    put(a.to, row * a.to_stride + v, counted ? scale * p : 0.0f);
  }
}

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

// A product by tiles of 32 x 32 of c, 64 threads with 4 x 4 of them each, f32 sums. It is for shapes and
// machines for which cuBLASLt has nothing, and for tests; products that take time come from there.
DS_BLOCK_KERNEL(product, ProductArgs, 64) {
  DS_SHARED(float, tile_a);
  constexpr int kPitch = kProductTile + 1;
  float* tile_b = tile_a + kProductTile * kPitch;
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kProductTile,
                column = static_cast<int64_t>(blockIdx.x) * kProductTile;
  const int tr = static_cast<int>(threadIdx.x / 8) * 4, tc = static_cast<int>(threadIdx.x % 8) * 4;
  float sum[4][4] = {};
  for (int64_t begin = 0; begin < a.k; begin += kProductTile) {
#pragma unroll 4
    for (int e = static_cast<int>(threadIdx.x); e < kProductTile * kProductTile; e += 64) {
      // Neighbours read neighbours, whichever way a matrix lies.
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
      for (int i = 0; i < 4; ++i) x[i] = tile_a[(tr + i) * kPitch + k], y[i] = tile_b[k * kPitch + tc + i];
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
