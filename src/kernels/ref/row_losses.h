#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/formulas/row_loss.h"
#include "kernels/formulas/row_softmax.h"
#include "kernels/ref/ref.h"

namespace ds::ref {

// Writes results 0 and 1 of a cross entropy whose row r has the logits logit(r, 0), ..., logit(r,
// words - 1). stats[r] is the softmax p of the row; the loss is the mean of -log p[target] over
// rows with target >= 0. Attributes modify the loss (kernels/formulas/row_loss.h).
template <typename A, typename Logit>
void put_losses(const KernelContext& c, const int32_t* targets, int64_t words, const Logit& logit) {
  auto* stats = c.out[1].as<RowSoftmax<A>>();
  auto* out = c.out[0].as<A>();
  const auto loss = RowLoss<A>::of(c.attrs, words);
  const Reduction reduction = reduction_of(c.attrs);
  int64_t counted = 0;
  double total = 0;
  for (int64_t r = 0; r < c.in[0].dims[0]; ++r) {
    auto of_row = [&](int64_t v) { return logit(r, v); };
    stats[r] = RowSoftmax<A>::of(words, of_row);
    if (reduction == Reduction::none) out[r] = 0;
    if (targets[r] < 0) continue;
    A spread = 0;
    for (int64_t v = 0; v < words && loss.smoothing != 0; ++v) spread += stats[r].top - of_row(v);
    A value = loss.value(stats[r], of_row(targets[r]), spread);
    if (reduction == Reduction::none) out[r] = value;
    total += static_cast<double>(value);
    ++counted;
  }
  if (reduction == Reduction::sum) out[0] = static_cast<A>(total);
  if (reduction != Reduction::mean) return;
  out[0] = static_cast<A>(counted == 0 ? 0.0 : total / static_cast<double>(counted));
}

// The gradients of the logits of a cross entropy: dloss / counted * p, and dloss / counted * (p -
// 1) at the target, where `counted` is the number of rows with a target. Attributes modify both.
// Operand `at` is the targets, operand `at` + 1 the stats.
template <typename A>
struct LogitGradients {
  const int32_t* targets;
  const RowSoftmax<A>* stats;
  RowLoss<A> loss;
  LossGradient<A> dloss;

  LogitGradients(const KernelContext& c, size_t at, int64_t words)
      : targets(c.in[at].as<int32_t>()),
        stats(c.in[at + 1].as<RowSoftmax<A>>()),
        loss(RowLoss<A>::of(c.attrs, words)),
        dloss(LossGradient<A>::of(c.attrs, c.in[0].as<A>(), targets, c.in[1].dims[0])) {}
  bool counts(int64_t r) const { return targets[r] >= 0; }
  A of(int64_t r, int64_t v, A logit) const {
    A p = std::exp(logit - stats[r].top) / stats[r].sum();
    A slope = v == targets[r] ? loss.of_target(stats[r], logit) : loss.of_other(stats[r], p);
    return dloss.of_row(r) * slope;
  }
};

}  // namespace ds::ref
