#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/skipped.h"

namespace ds::ref {
namespace {

// Kingma and Ba, "Adam" (2015); decoupled decay: Loshchilov and Hutter (2019). All elements in f32; constants
// are formed in f64 and rounded once. Every implementation follows this order of operations exactly.
template <typename T>
void adamw(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* grad = c.in[0].as<float>();
  float *master = c.out[0].as<float>(), *m = c.out[1].as<float>(), *v = c.out[2].as<float>();
  T* param = c.out[3].as<T>();
  const GroupScalars& group = c.scalars.group;
  double lr = group.lr, wd = group.weight_decay;
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
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float p = master[e] * decay;
    float g = grad[e] * grad_scale + penalty * p;
    m[e] = b1 * m[e] + one_b1 * g;
    v[e] = b2 * v[e] + one_b2 * (g * g);
    p = p - rate * (m[e] / c1) / (std::sqrt(v[e] / c2) + eps);
    master[e] = p;
    param[e] = static_cast<T>(p);
  }
}

}  // namespace

void add_adamw(KernelRegistry& registry) {
  add_kernel(registry, "adamw",
             [](const KernelContext& c) { by_type(c.out[3].dtype, [&](auto t) { adamw<decltype(t)>(c); }); });
}

}  // namespace ds::ref
