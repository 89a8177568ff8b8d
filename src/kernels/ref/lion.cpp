#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/skipped.h"

namespace ds::ref {
namespace {

// Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), in the form of DeepSpeedCPULion: the
// sign of +0 is +. docs/reference/ops.md has the order of operations.
template <typename T>
void lion(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* grad = c.in[0].as<float>();
  float *master = c.out[0].as<float>(), *m = c.out[1].as<float>();
  T* param = c.out[2].as<T>();
  const GroupScalars& group = c.scalars.group;
  float grad_scale = static_cast<float>(c.scalars.grad_scale), rate = static_cast<float>(group.lr);
  float b1 = static_cast<float>(group.beta1), one_b1 = static_cast<float>(1 - group.beta1);
  float b2 = static_cast<float>(group.beta2), one_b2 = static_cast<float>(1 - group.beta2);
  float keep = static_cast<float>(1 - group.lr * group.weight_decay);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float g = grad[e] * grad_scale;
    float direction = b1 * m[e] + one_b1 * g;
    master[e] = master[e] * keep - std::copysign(rate, direction);
    m[e] = b2 * m[e] + one_b2 * g;
    param[e] = static_cast<T>(master[e]);
  }
}

}  // namespace

void add_lion(KernelRegistry& registry) {
  add_kernel(registry, "lion",
             [](const KernelContext& c) { by_type(c.out[2].dtype, [&](auto t) { lion<decltype(t)>(c); }); });
}

}  // namespace ds::ref
