#include <array>
#include <cmath>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (2011), in the form of
// torch.optim.Adagrad. docs/reference/ops.md has the order of operations.
void adagrad(const KernelContext& c) {
  const GroupScalars& group = c.scalars.group;
  float grad_scale = static_cast<float>(c.scalars.grad_scale), eps = static_cast<float>(group.eps);
  float wd = static_cast<float>(group.weight_decay);
  double decayed = 1 + static_cast<double>(c.scalars.updates) * c.attrs.real_or("lr_decay", 0);
  float rate = static_cast<float>(group.lr / decayed);
  float initial = c.scalars.updates == 0 ? static_cast<float>(c.attrs.real_or("initial", 0)) : 0.0f;
  update_of_types<1>(c, [=](float grad, float& p, std::array<float, 1>& states) {
    float& sum = states[0];
    float g = grad * grad_scale + wd * p;
    sum = (sum + initial) + g * g;
    p = p - (rate * g) / (std::sqrt(sum) + eps);
  });
}

}  // namespace

void add_adagrad(KernelRegistry& registry) { add_kernel(registry, "adagrad", adagrad); }

}  // namespace ds::ref
