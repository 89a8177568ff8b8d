#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Of all leaves of the step this rank's own are one `ranks`-th.
float own_scale(const KernelContext& c) {
  return static_cast<float>(c.scalars.grad_scale * static_cast<double>(c.attrs.integer("ranks")));
}

void own_gradient(const KernelContext& c) {
  const float* grad = c.in[0].as<float>();
  float* mean = c.out[0].as<float>();
  float scale = own_scale(c);
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    mean[e] = c.scalars.skip != 0 ? 0.0f : grad[e] * scale;
}

// 0/1 Adam (Lu et al., arXiv:2202.06009) between two synchronisations: the sum of this rank's steps
// grows; its parameters are those that all ranks agreed on and the sum. With `sum` 1 it is left
// times the root, as ranks add it up.
template <typename T>
void local_adam(const KernelContext& c) {
  const float *grad = c.in[0].as<float>(), *v = c.in[1].as<float>(), *master = c.in[2].as<float>();
  float *m = c.out[0].as<float>(), *steps = c.out[1].as<float>();
  T* param = c.out.size() > 2 ? c.out[2].as<T>() : nullptr;
  const GroupScalars& group = c.scalars.group;
  float rate = static_cast<float>(group.lr), eps = static_cast<float>(group.eps);
  float decay = static_cast<float>(group.weight_decay), b1 = static_cast<float>(group.beta1);
  float one_b1 = static_cast<float>(1 - group.beta1), scale = own_scale(c);
  bool sum = c.attrs.integer("sum") != 0;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    if (c.scalars.skip == 0) {
      float root = std::sqrt(v[e]) + eps, p = master[e] + steps[e];
      m[e] = b1 * m[e] + one_b1 * (grad[e] * scale);
      steps[e] = steps[e] - rate * (m[e] / root + decay * p);
      if (sum) steps[e] = steps[e] * root;
    }
    if (param) param[e] = static_cast<T>(master[e] + steps[e]);
  }
}

// Behind the synchronisation: the sum is the mean of all ranks.
template <typename T>
void synced_adam(const KernelContext& c) {
  const float* v = c.in[0].as<float>();
  float *m = c.out[0].as<float>(), *steps = c.out[1].as<float>(), *master = c.out[2].as<float>();
  T* param = c.out[3].as<T>();
  const GroupScalars& group = c.scalars.group;
  float eps = static_cast<float>(group.eps), rates = static_cast<float>(group.rate_sum);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    if (c.scalars.skip == 0) {
      if (rates != 0) m[e] = 0.0f - steps[e] / rates;
      master[e] = master[e] + steps[e] / (std::sqrt(v[e]) + eps);
      steps[e] = 0;
    }
    param[e] = static_cast<T>(master[e] + steps[e]);
  }
}

}  // namespace

void add_local_adam(KernelRegistry& registry) {
  add_kernel(registry, "own_gradient", own_gradient);
  add_kernel(registry, "local_adam", [](const KernelContext& c) {
    by_type(c.out.size() > 2 ? c.out[2].dtype : DS_DTYPE_F32,
            [&](auto t) { local_adam<decltype(t)>(c); });
  });
  add_kernel(registry, "synced_adam", [](const KernelContext& c) {
    by_type(c.out[3].dtype, [&](auto t) { synced_adam<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
