// The choice of experts, and the load-balancing loss (Fedus et al., "Switch Transformers",
// arXiv:2101.03961), within the tolerances of kernels/accuracy.cpp. There are few experts, so one
// thread processes a row, and ranks a logit by counting the larger ones. Sums over rows are
// computed in f64 by one block for each expert and layer; sums over layers are in the order of
// layers.
#include "kernels/cuda/device.h"
#include "kernels/cuda/router.h"

namespace ds::cuda {
namespace {

DS_DEVICE float logit(const RouterArgs& a, int64_t row, int64_t e) {
  return get(a.logits, row * a.experts + e);
}
// Returns whether expert e has one of the k largest logits. Of equal logits, the one with the lower
// index ranks higher.
DS_DEVICE bool chosen(const RouterArgs& a, int64_t row, int64_t e) {
  const float own = logit(a, row, e);
  int64_t above = 0;
  for (int64_t j = 0; j < a.experts; ++j) {
    const float other = logit(a, row, j);
    above += other > own || (other == own && j < e) ? 1 : 0;
  }
  return above < a.k;
}
// Returns softmax(row)[e], computed from the logarithm that router_bases has stored.
DS_DEVICE double share_of(const RouterArgs& a, int64_t row, int64_t e) {
  return exp(static_cast<double>(logit(a, row, e)) - a.base[row]);
}
DS_DEVICE bool counts(const RouterArgs& a, int64_t row) { return !a.mask || a.mask[row] != 0; }

// The denominator of a row's gates: the largest logit, and the sum of exp(logit - top) over the
// chosen experts if gates are normalized, otherwise over all experts.
struct Gates {
  float top, sum;
};
DS_DEVICE Gates gates_of(const RouterArgs& a, int64_t row) {
  Gates g{logit(a, row, 0), 0};
  for (int64_t e = 1; e < a.experts; ++e) {
    const float x = logit(a, row, e);
    g.top = x > g.top ? x : g.top;
  }
  for (int64_t e = 0; e < a.experts; ++e) {
    if (!a.normalize || chosen(a, row, e)) g.sum += expf(logit(a, row, e) - g.top);
  }
  return g;
}

}  // namespace

// The gate of a chosen expert is exp(logit - top) / sum (see Gates); other gates are 0.
DS_LOOP_KERNEL(top_gates, RouterArgs) {
  const int64_t row = thread_number();
  if (row >= a.rows) return;
  const Gates g = gates_of(a, row);
  for (int64_t e = 0; e < a.experts; ++e)
    put(a.to, row * a.experts + e,
        chosen(a, row, e) ? expf(logit(a, row, e) - g.top) / g.sum : 0.0f);
}

// dlogit = p (dy - sum of dy p over the chosen experts), where dy counts as 0 for experts that were
// not chosen. Without normalization, these experts have a gradient, too, because their logits are
// part of the denominator.
DS_LOOP_KERNEL(top_gates_dx, RouterArgs) {
  const int64_t row = thread_number();
  if (row >= a.rows) return;
  const Gates g = gates_of(a, row);
  float mean = 0;
  for (int64_t e = 0; e < a.experts; ++e) {
    if (chosen(a, row, e))
      mean += get(a.dy, row * a.experts + e) * (expf(logit(a, row, e) - g.top) / g.sum);
  }
  for (int64_t e = 0; e < a.experts; ++e) {
    const bool own = chosen(a, row, e);
    const float p = own || !a.normalize ? expf(logit(a, row, e) - g.top) / g.sum : 0.0f;
    put(a.to, row * a.experts + e, p * ((own ? get(a.dy, row * a.experts + e) : 0.0f) - mean));
  }
}

// Computes the logarithm of each row's sum of exponentials, in f64, because the gradient of a
// balanced choice is a small difference of shares.
DS_LOOP_KERNEL(router_bases, RouterArgs) {
  const int64_t row = thread_number();
  if (row >= a.rows) return;
  const double top = static_cast<double>(gates_of(a, row).top);
  double sum = 0;
  for (int64_t e = 0; e < a.experts; ++e) sum += exp(static_cast<double>(logit(a, row, e)) - top);
  a.base[row] = top + log(sum);
}

// Each block computes, for one expert of one layer, the number of rows that chose it and the sum of
// its softmax over the rows. The block of expert 0 also stores the number of rows that are not
// masked.
DS_BLOCK_KERNEL(router_totals, RouterArgs, kRouterThreads) {
  DS_SHARED(double, room);
  const int64_t e = blockIdx.x;
  double chose = 0, share = 0, counted = 0;
  for (int64_t row = threadIdx.x; row < a.rows; row += blockDim.x) {
    if (!counts(a, row)) continue;
    counted += 1;
    chose += chosen(a, row, e) ? 1 : 0;
    share += share_of(a, row, e);
  }
  chose = block_sum(chose, room);
  share = block_sum(share, room + kRoom);
  counted = block_sum(counted, room + 2 * kRoom);
  if (threadIdx.x != 0) return;
  double* to = a.totals + (a.layer * a.experts + e) * 2;
  to[0] = chose;
  to[1] = share;
  if (e == 0) *a.counted = counted;
}

// One thread computes f (share of rows) and p (mean softmax) of each expert over all layers and, in
// forward, the loss: experts * sum of f p.
DS_LOOP_KERNEL(router_loss, RouterArgs) {
  if (thread_number() != 0) return;
  const double rows = *a.counted * static_cast<double>(a.layers);
  double sum = 0;
  for (int64_t e = 0; e < a.experts; ++e) {
    double f = 0, p = 0;
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      f += a.totals[(layer * a.experts + e) * 2];
      p += a.totals[(layer * a.experts + e) * 2 + 1];
    }
    f = rows > 0 ? f / rows : 0;
    p = rows > 0 ? p / rows : 0;
    a.shares[2 * e] = f;
    sum += f * p;
  }
  if (a.loss) *a.loss = static_cast<float>(static_cast<double>(a.experts) * sum);
}

// f is not differentiable with respect to the logits, so only p contributes: dlogit = weight p (f -
// sum of f p).
DS_LOOP_KERNEL(load_balance_dx, RouterArgs) {
  const int64_t row = thread_number();
  if (row >= a.rows) return;
  const bool counted = counts(a, row);
  const double weight = static_cast<double>(*a.dloss) * static_cast<double>(a.experts) /
                        (*a.counted * static_cast<double>(a.layers));
  double mean = 0;
  for (int64_t e = 0; e < a.experts; ++e) mean += a.shares[2 * e] * share_of(a, row, e);
  for (int64_t e = 0; e < a.experts; ++e) {
    const double p = share_of(a, row, e);
    put(a.to, row * a.experts + e,
        counted ? static_cast<float>(weight * p * (a.shares[2 * e] - mean)) : 0.0f);
  }
}

}  // namespace ds::cuda
