// The operations that decide a step, and the sum over ranks, with the same bits as the CPU's
// kernels. The order of additions is part of their definition, so one thread computes a whole sum:
// of a granule, of a block of 256 numbers, or of an element over the ranks.
#include "kernels/cuda/device.h"
#include "kernels/cuda/granules-inl.h"
#include "kernels/cuda/row-inl.h"
#include "kernels/cuda/step.h"

namespace ds::cuda {

// Computes the sum of squares of each granule; see granules-inl.h.
DS_BLOCK_KERNEL(granule_norms, NormsArgs, kGranuleThreads) {
  DS_SHARED(float, tile);
  with_type(a.x.dtype, [&](auto given) {
    sum_squares<1, 8>(
        a.granules, a.granule, tile,
        [&](int64_t e, float* x) { x[0] = element<decltype(given)::value>(a.x, e); },
        [&](int64_t granule, const double* sums) { a.out[granule] = sums[0]; });
  });
}

// Copies the elements of a sum into the order in which they are added. blockIdx.y is the piece.
DS_LOOP_KERNEL(gather_sums, GatherArgs) {
  const GatherPiece& piece = a.piece[blockIdx.y];
  for (int64_t i = thread_number(); i < piece.count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    a.to[piece.to + i] = a.from[piece.begin + i];
}
// The inverse of gather_sums, for floats.
DS_LOOP_KERNEL(scatter_runs, GatherArgs) {
  const GatherPiece& piece = a.piece[blockIdx.y];
  for (int64_t i = thread_number(); i < piece.count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    a.placed[piece.begin + i] = a.ordered[piece.to + i];
}
// to[k] = the sum of the elements of block k of 256, in order.
DS_LOOP_KERNEL(block_sums, BlockSumsArgs) {
  const int64_t begin = thread_number() * kSumBlock;
  // Thread 0 writes even for a count of 0: the empty sum is 0.
  if (begin > 0 && begin >= a.count) return;
  const int64_t end = begin + kSumBlock < a.count ? begin + kSumBlock : a.count;
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += a.from[i];
  a.to[begin / kSumBlock] = sum;
}

DS_LOOP_KERNEL(sum_norms, StepArgs) {
  if (thread_number() == 0) *a.out = *a.sum;
}

// One thread computes the norm of the mean gradient, the factor that clips it to max_norm, and
// whether the step must be skipped.
DS_LOOP_KERNEL(clip, StepArgs) {
  if (thread_number() != 0) return;
  StepScalars& s = *a.scalars;
  // Gradients are sums over leaves, multiplied by the loss scale.
  const double scale = (s.weight > 0 ? s.weight : 1) * s.loss_scale;
  const double norm = sqrt(*a.sum * a.ranks) / scale;
  double coefficient = 1;
  if (a.max_norm > 0) {
    const double share = a.max_norm / (norm + 1e-6);
    coefficient = share < 1.0 ? share : 1.0;
  }
  s.grad_norm = norm;
  s.grad_scale = coefficient / scale;
  // x - x is 0 only for finite numbers.
  const bool finite = a.unchecked || (norm - norm == 0 && s.loss - s.loss == 0);
  s.skip = finite && s.weight > 0 ? 0 : 1;
}

// Computes the weighted mean of the losses of the step, the number of leaves and the sum of their
// weights. Leaves are added in the order of their indices, micro_step * ranks + rank. Each rank has
// the losses of its micro-steps, followed by their weights if `unit` is positive. The sum of the
// weights is then stored in multiples of `unit`.
DS_LOOP_KERNEL(losses, StepArgs) {
  if (thread_number() != 0) return;
  const int64_t own = a.unit > 0 ? 2 * a.micros : a.micros;
  int64_t leaves = 0;
  double sum = 0, weights = 0;
  for (int64_t m = 0; m < a.micros; ++m) {
    for (int64_t r = 0; r < a.rank_count; ++r) {
      const float loss = a.losses[r * own + m];
      if (bits_of(loss) == kNoLeaf) continue;
      ++leaves;
      const double weight =
          a.unit > 0 ? static_cast<double>(a.losses[r * own + a.micros + m]) : 1.0;
      if (weight == 0) continue;
      sum += weight * static_cast<double>(loss);
      weights += weight;
    }
  }
  a.scalars->leaves = leaves;
  a.scalars->loss = sum / weights;
  a.scalars->weight = a.unit > 0 ? weights / static_cast<double>(a.unit) : weights;
}

// Sets grad_scale, by which an update multiplies gradients, to 1, because the gradients already are
// means.
DS_LOOP_KERNEL(mean_gradients, StepArgs) {
  if (thread_number() == 0) a.scalars->grad_scale = 1;
}

// unit_matrix divides a matrix by its norm. First, each thread of unit_pieces adds up the squares
// of one of at most 64 pieces; then every thread of unit_matrix adds up the pieces in order, which
// is cheaper than another launch.
DS_LOOP_KERNEL(unit_pieces, UnitArgs) {
  const int64_t k = thread_number();
  if (k >= a.piece_count) return;
  const int64_t end = (k + 1) * a.piece < a.count ? (k + 1) * a.piece : a.count;
  double sum = 0;
  for (int64_t e = k * a.piece; e < end; ++e) {
    const double x = static_cast<double>(get(a.x, e));
    sum += x * x;
  }
  a.pieces[k] = sum;
}
DS_LOOP_KERNEL(unit_matrix, UnitArgs) {
  double sum = 0;
  for (int64_t k = 0; k < a.piece_count; ++k) sum += a.pieces[k];
  const float norm = static_cast<float>(sqrt(sum) + a.eps);
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.x, i, n, a.wide != 0);
#pragma unroll
    for (int k = 0; k < 8; ++k) x.v[k] = x.v[k] / norm;
    store(a.out, i, n, a.wide != 0, x);
  });
}

// Computes the sum over at most 64 ranks in f32, as sum_of_ranks() of device.h does, but for eight
// elements at a time.
DS_LOOP_KERNEL(tree_sum, TreeSumArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight level[6];
    const auto part = [&](int64_t r) {
      return Operand{const_cast<void*>(a.parts[r]), a.part.dtype, 0};
    };
    // A sum of 2^l ranks waits at level l, as in a binary counter.
#pragma unroll 1
    for (int64_t r = 0; r < a.ranks; ++r) {
      Eight sum = load(part(r), i, n, a.wide != 0);
      bool rises = true;
#pragma unroll
      for (int l = 0; l < 6; ++l) {
        if (rises && (r >> l & 1)) {
#pragma unroll
          for (int k = 0; k < 8; ++k) sum.v[k] = level[l].v[k] + sum.v[k];
        } else if (rises) {
          level[l] = sum;
          rises = false;
        }
      }
      // Only the last of 64 ranks gets past level 5; `sum` is then the sum over all ranks.
      if (rises) store(a.out, i, n, a.wide != 0, sum);
    }
    if (a.ranks == 64) return;
    Eight all;
    bool any = false;
#pragma unroll
    for (int l = 0; l < 6; ++l) {
      if (!(a.ranks >> l & 1)) continue;
#pragma unroll
      for (int k = 0; k < 8; ++k) all.v[k] = any ? level[l].v[k] + all.v[k] : level[l].v[k];
      any = true;
    }
    store(a.out, i, n, a.wide != 0, all);
  });
}

}  // namespace ds::cuda
