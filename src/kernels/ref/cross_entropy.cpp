#include <cmath>
#include <cstdint>

#include "kernels/ref/ref.h"
#include "kernels/row_loss.h"
#include "kernels/row_softmax.h"

namespace ds::ref {
namespace {

// stats[r] = the softmax of row r; loss = mean of -log p[target] over rows with target >= 0, and
// what the attributes make of it (kernels/row_loss.h)
template <typename T>
void cross_entropy(const KernelContext& c) {
  const T* logits = c.in[0].as<T>();
  const int32_t* targets = c.in[1].as<int32_t>();
  auto* stats = c.out[1].as<RowSoftmax<Wide<T>>>();
  int64_t rows = c.in[0].dims[0], words = c.in[0].dims[1], counted = 0;
  const auto loss = RowLoss<Wide<T>>::of(c.attrs, words);
  const Reduction reduction = reduction_of(c.attrs);
  auto* out = c.out[0].as<Wide<T>>();
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    auto logit = [&](int64_t v) { return get(logits, r * words + v); };
    stats[r] = RowSoftmax<Wide<T>>::of(words, logit);
    if (reduction == Reduction::none) out[r] = 0;
    if (targets[r] < 0) continue;
    Wide<T> spread = 0;
    for (int64_t v = 0; v < words && loss.smoothing != 0; ++v) spread += stats[r].top - logit(v);
    Wide<T> of_row = loss.value(stats[r], logit(targets[r]), spread);
    if (reduction == Reduction::none) out[r] = of_row;
    total += static_cast<double>(of_row);
    ++counted;
  }
  if (reduction == Reduction::sum) out[0] = static_cast<Wide<T>>(total);
  if (reduction != Reduction::mean) return;
  out[0] = static_cast<Wide<T>>(counted == 0 ? 0.0 : total / static_cast<double>(counted));
}

// dlogits = dloss / counted p, and dloss / counted (p - 1) at the target, unless the attributes say
// otherwise; rows without a target are 0
template <typename T>
void cross_entropy_dx(const KernelContext& c) {
  const T* logits = c.in[1].as<T>();
  const int32_t* targets = c.in[2].as<int32_t>();
  const auto* stats = c.in[3].as<RowSoftmax<Wide<T>>>();
  T* dx = c.out[0].as<T>();
  int64_t rows = c.in[1].dims[0], words = c.in[1].dims[1];
  const auto loss = RowLoss<Wide<T>>::of(c.attrs, words);
  const auto dloss = LossGradient<Wide<T>>::of(c.attrs, c.in[0].as<Wide<T>>(), targets, rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < words; ++v) {
      Wide<T> logit = get(logits, r * words + v),
              p = std::exp(logit - stats[r].top) / stats[r].sum();
      Wide<T> slope =
          v == targets[r] ? loss.of_target(stats[r], logit) : loss.of_other(stats[r], p);
      Wide<T> g = dloss.of_row(r) * slope;
      dx[r * words + v] = static_cast<T>(targets[r] < 0 ? 0 : g);
    }
  }
}

}  // namespace

void add_cross_entropy(KernelRegistry& registry) {
  add_kernel(registry, "cross_entropy", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { cross_entropy<decltype(t)>(c); });
  });
  add_kernel(registry, "cross_entropy_dx", [](const KernelContext& c) {
    by_type(c.in[1].dtype, [&](auto t) { cross_entropy_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
