#include <array>
#include <cmath>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// Kingma and Ba, "Adam" (2015); decoupled decay: Loshchilov and Hutter (2019). All arithmetic in f32;
// constants are formed in f64 and rounded once. Every implementation follows this order of operations
// exactly.
void adamw(const KernelContext& c) {
  const GroupScalars& group = c.scalars.group;
  double lr = c.attrs.integer_or("own_rate", 0) != 0 ? group.adam_lr : group.lr, wd = group.weight_decay;
  bool l2 = c.attrs.integer("l2") != 0;
  float grad_scale = static_cast<float>(c.scalars.grad_scale);
  float b1 = static_cast<float>(group.beta1), one_b1 = static_cast<float>(1 - group.beta1);
  float b2 = static_cast<float>(group.beta2), one_b2 = static_cast<float>(1 - group.beta2);
  double t = static_cast<double>(c.scalars.updates + 1);
  bool corrected = c.attrs.integer_or("bias_correction", 1) != 0;
  float c1 = corrected ? static_cast<float>(1 - std::pow(group.beta1, t)) : 1.0f,
        c2 = corrected ? static_cast<float>(1 - std::pow(group.beta2, t)) : 1.0f;
  float rate = static_cast<float>(lr), eps = static_cast<float>(group.eps);
  float decay = l2 ? 1.0f : static_cast<float>(1 - lr * wd), penalty = l2 ? static_cast<float>(wd) : 0.0f;
  update_of_types<2>(c, [=](float grad, float& p, std::array<float, 2>& states) {
    auto& [m, v] = states;
    p = p * decay;
    float g = grad * grad_scale + penalty * p;
    m = b1 * m + one_b1 * g;
    v = b2 * v + one_b2 * (g * g);
    p = p - rate * (m / c1) / (std::sqrt(v / c2) + eps);
  });
}

}  // namespace

void add_adamw(KernelRegistry& registry) { add_kernel(registry, "adamw", adamw); }

}  // namespace ds::ref
