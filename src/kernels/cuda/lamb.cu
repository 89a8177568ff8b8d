// LAMB, with the same bits as the CPU's kernels (kernels/ref/lamb.cpp says why there are three
// operations). Norms are sums in f64 in the order of elements, so one thread adds up a whole
// granule. One block of threads adds up the norms of a parameter's granules: in blocks of 256, then
// blocks of these sums, and so on.
#include "kernels/cuda/device.h"
#include "kernels/cuda/granules-inl.h"
#include "kernels/cuda/lamb.h"

namespace ds::cuda {
namespace {

// The constants of lamb_step(), which update.cu computes for Rule::lamb. lamb_moments reads its
// constants without this struct.
struct Lamb {
  float eps, decay, rate;
  bool inside;
};
DS_DEVICE Lamb lamb_of(const LambArgs& a) {
  const float* v = a.constants->v;
  return {v[5], v[6], v[7], a.inside != 0};
}
// Returns the step of an element before the trust ratio is applied: m / (sqrt(v) + eps) + decay p,
// or with eps inside the root.
DS_DEVICE float lamb_step(const Lamb& c, float p, float m, float v) {
  const float root = sqrtf(c.inside ? v + c.eps : v);
  return m / (c.inside ? root : root + c.eps) + c.decay * p;
}

}  // namespace

// Updates the moments of every element in place, unless the step is skipped.
DS_LOOP_KERNEL(lamb_moments, LambArgs) {
  if (a.constants->skip != 0) return;
  const float* c = a.constants->v;
  each_eight(a.count, [&](int64_t i, int n) {
    const Eight grad = load(a.grad, i, n, a.wide);
    Eight m = load(a.m, i, n, a.wide), v = load(a.v, i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float g = grad.v[k] * c[0];
      m.v[k] = c[1] * m.v[k] + c[2] * g;
      v.v[k] = c[3] * v.v[k] + c[4] * (g * g);
    }
    store(a.m, i, n, a.wide, m);
    store(a.v, i, n, a.wide, v);
  });
}

// Computes, for each granule, the sums of squares of the parameter and of its step. In a skipped
// step granules are treated as empty, so that all sums are 0 and nothing is read.
DS_BLOCK_KERNEL(lamb_norms, LambArgs, kGranuleThreads) {
  DS_SHARED(float, tiles);
  const Lamb lamb = lamb_of(a);
  const int64_t granule = a.constants->skip != 0 ? 0 : a.granule;
  sum_squares<2, 1>(
      a.granules, granule, tiles,
      [&](int64_t e, float* x) {
        x[0] = get(a.master, e);
        x[1] = lamb_step(lamb, x[0], get(a.m, e), get(a.v, e));
      },
      [&](int64_t at, const double* sums) {
        a.norms[2 * at] = sums[0];
        a.norms[2 * at + 1] = sums[1];
      });
}

// Each block adds up the norms of one parameter's granules, computes the trust ratio, and writes it
// for each of these granules. Each level of sums reads the previous one, so the levels alternate
// between two buffers.
DS_BLOCK_KERNEL(lamb_ratios, RatiosArgs, kRatioThreads) {
  DS_SHARED(float, found);
  const LambGroup group = a.group[blockIdx.x];
  const int64_t room = 2 * (group.begin / kRatioThreads + a.first + blockIdx.x);
  const double* from = a.norms + 2 * group.begin;
  int64_t count = group.count;
  for (int turn = 0; turn == 0 || count > 1; ++turn) {
    double* const to = a.sums[turn % 2] + room;
    const int64_t blocks = (count + kRatioThreads - 1) / kRatioThreads;
    for (int64_t b = threadIdx.x; b < blocks; b += kRatioThreads) {
      const int64_t end = (b + 1) * kRatioThreads < count ? (b + 1) * kRatioThreads : count;
      double param = 0, step = 0;
      for (int64_t i = b * kRatioThreads; i < end; ++i) {
        param += from[2 * i];
        step += from[2 * i + 1];
      }
      to[2 * b] = param;
      to[2 * b + 1] = step;
    }
    __syncthreads();
    from = to;
    count = blocks;
  }
  if (threadIdx.x == 0) {
    const double p = sqrt(from[0]), u = sqrt(from[1]);
    float ratio = 1;
    if (p > 0 && u > 0) {
      const double share = p / u, least = share < a.least ? a.least : share;
      ratio = static_cast<float>(a.most < least ? a.most : least);
    }
    if (a.means && ratio != 1) {
      float& mean = a.means[group.number];
      mean = static_cast<float>(a.beta * static_cast<double>(mean) +
                                (1 - a.beta) * static_cast<double>(ratio));
    }
    found[0] = ratio;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < group.count; i += kRatioThreads)
    a.ordered[group.begin + i] = found[0];
}

// p -= rate * ratio * step. The ratio is read once for eight elements if they are always in the
// same granule.
DS_LOOP_KERNEL(lamb, LambArgs) {
  const bool skip = a.constants->skip != 0, same_granule = a.granule % 8 == 0;
  const Lamb lamb = lamb_of(a);
  each_eight(a.count, [&](int64_t i, int n) {
    Eight p = load(a.master, i, n, a.wide);
    if (!skip) {
      const Eight m = load(a.m, i, n, a.wide), v = load(a.v, i, n, a.wide);
      float ratio = a.ratios[i / a.granule];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        if (!same_granule && k < n) ratio = a.ratios[(i + k) / a.granule];
        p.v[k] = p.v[k] - lamb.rate * ratio * lamb_step(lamb, p.v[k], m.v[k], v.v[k]);
      }
      store(a.master, i, n, a.wide, p);
    }
    if (!a.same) store(a.param, i, n, a.wide, p);
  });
}

}  // namespace ds::cuda
