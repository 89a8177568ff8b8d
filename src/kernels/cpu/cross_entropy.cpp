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
#include "kernels/row_loss.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// stats[r] = the softmax of row r; loss = mean of -log p[target] over rows with target >= 0, the
// terms added in row order in f64; attributes change the terms (kernels/row_loss.h)
template <typename T>
void cross_entropy_of(const KernelContext& c) {
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

void cross_entropy(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { cross_entropy_of<decltype(t)>(c); });
}

// dlogits = dloss / counted p, and dloss / counted (p - 1) at the target, unless attributes change
// the terms; rows without a target are 0
template <typename T>
void cross_entropy_dx_of(const KernelContext& c) {
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

void cross_entropy_dx(const KernelContext& c) {
  by_type(c.in[1].dtype, [&](auto t) { cross_entropy_dx_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(cross_entropy);
HWY_EXPORT(cross_entropy_dx);

void add_cross_entropy(KernelRegistry& registry) {
  add_kernel(registry, "cross_entropy", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(cross_entropy)(c);
  });
  add_kernel(registry, "cross_entropy_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(cross_entropy_dx)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
