#include <array>
#include <cmath>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), in the form of
// DeepSpeedCPULion: the sign of +0 is +. docs/reference/ops.md has the order of operations.
void lion(const KernelContext& c) {
  const GroupScalars& group = c.scalars.group;
  float grad_scale = static_cast<float>(c.scalars.grad_scale), rate = static_cast<float>(group.lr);
  float b1 = static_cast<float>(group.beta1), one_b1 = static_cast<float>(1 - group.beta1);
  float b2 = static_cast<float>(group.beta2), one_b2 = static_cast<float>(1 - group.beta2);
  float keep = static_cast<float>(1 - group.lr * group.weight_decay);
  update_of_types<1>(c, [=](float grad, float& p, std::array<float, 1>& states) {
    float& m = states[0];
    float g = grad * grad_scale;
    float direction = b1 * m + one_b1 * g;
    p = p * keep - std::copysign(rate, direction);
    m = b2 * m + one_b2 * g;
  });
}

}  // namespace

void add_lion(KernelRegistry& registry) { add_kernel(registry, "lion", lion); }

}  // namespace ds::ref
