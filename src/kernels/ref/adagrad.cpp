#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/skipped.h"

namespace ds::ref {
namespace {

// Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (2011), in the form of torch.optim.Adagrad.
// docs/reference/ops.md has the order of operations.
template <typename T>
void adagrad(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* grad = c.in[0].as<float>();
  float *master = c.out[0].as<float>(), *sum = c.out[1].as<float>();
  T* param = c.out[2].as<T>();
  const GroupScalars& group = c.scalars.group;
  float grad_scale = static_cast<float>(c.scalars.grad_scale), eps = static_cast<float>(group.eps);
  float wd = static_cast<float>(group.weight_decay);
  float rate = static_cast<float>(
      group.lr / (1 + static_cast<double>(c.scalars.updates) * c.attrs.real_or("lr_decay", 0)));
  bool first = c.scalars.updates == 0;
  float initial = first ? static_cast<float>(c.attrs.real_or("initial", 0)) : 0.0f;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float g = grad[e] * grad_scale + wd * master[e];
    sum[e] = (sum[e] + initial) + g * g;
    master[e] = master[e] - (rate * g) / (std::sqrt(sum[e]) + eps);
    param[e] = static_cast<T>(master[e]);
  }
}

}  // namespace

void add_adagrad(KernelRegistry& registry) {
  add_kernel(registry, "adagrad", [](const KernelContext& c) {
    by_type(c.out[2].dtype, [&](auto t) { adagrad<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
