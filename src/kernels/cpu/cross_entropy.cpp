// The cross entropy of rows of logits and its gradient. A task computes several rows;
// row_softmax-inl.h has the arithmetic of a row.
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_losses.h"
#include "kernels/cpu/row_softmax-inl.h"
#include "kernels/formulas/row_loss.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// stats[r] = the softmax p of row r; loss = the mean of -log p[target] over rows with target >= 0,
// added in row order in f64. Attributes modify the loss (kernels/formulas/row_loss.h).
template <typename T>
void cross_entropy(const KernelContext& c) {
  const T* logits = c.in[0].as<T>();
  std::span targets(c.in[1].as<int32_t>(), static_cast<size_t>(c.in[1].numel()));
  auto* stats = c.out[1].as<Softmax>();
  int64_t width = c.in[0].dims[1];
  const auto loss = RowLoss<float>::of(c.attrs, width);
  auto term = [=](int64_t r) HWY_ATTR {
    const T* row = logits + r * width;
    int32_t target = targets[static_cast<size_t>(r)];
    stats[r] = joined(kNoSoftmax, row, width);
    if (target < 0) return 0.0f;
    float spread = loss.smoothing == 0 ? 0 : spread_of(stats[r].top, row, width);
    return loss.value(stats[r], static_cast<float>(row[target]), spread);
  };
  reduce_losses(c.team, reduction_of(c.attrs), targets, rows_per_task(width), c.out[0].as<float>(),
                term);
}

// dlogits = dloss / counted * p, and dloss / counted * (p - 1) at the target, where `counted` is
// the number of rows with a target. Attributes modify both. Rows without a target are 0.
template <typename T>
void cross_entropy_dx(const KernelContext& c) {
  const T* logits = c.in[1].as<T>();
  const int32_t* targets = c.in[2].as<int32_t>();
  const auto* stats = c.in[3].as<Softmax>();
  T* dx = c.out[0].as<T>();
  int64_t rows = c.in[1].dims[0], width = c.in[1].dims[1];
  const auto loss = RowLoss<float>::of(c.attrs, width);
  const auto dloss = LossGradient<float>::of(c.attrs, c.in[0].as<float>(), targets, rows);
  for_blocks(c.team, rows, rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      T* out = dx + r * width;
      if (targets[r] < 0) {
        std::fill(out, out + width, T(0.0f));
      } else {
        softmax_gradient(stats[r], loss, logits + r * width, width, targets[r], dloss.of_row(r),
                         out);
      }
    }
  });
}

void add_cross_entropy(KernelRegistry& registry) {
  add_by_type(registry, "cross_entropy", []<typename T>() { return cross_entropy<T>; });
  add_by_type<in_type<1>>(registry, "cross_entropy_dx",
                          []<typename T>() { return cross_entropy_dx<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
