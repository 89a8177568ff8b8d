#include <cstdint>

#include "kernels/ref/ref.h"
#include "kernels/skipped.h"

namespace ds::ref {
namespace {

// Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013), in the form
// of torch.optim.SGD: the rate multiplies the buffer, not what enters it. docs/reference/ops.md has the order
// of operations.
template <typename T>
void sgd(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* grad = c.in[0].as<float>();
  float *master = c.out[0].as<float>(), *buffer = c.out[1].as<float>();
  T* param = c.out[2].as<T>();
  bool nesterov = c.attrs.integer("nesterov") != 0;
  bool first = c.scalars.updates == 0, maximize = c.attrs.integer_or("maximize", 0) != 0;
  float grad_scale = static_cast<float>(maximize ? -c.scalars.grad_scale : c.scalars.grad_scale);
  float rate = static_cast<float>(c.scalars.group.lr);
  float momentum = static_cast<float>(c.scalars.group.momentum),
        wd = static_cast<float>(c.scalars.group.weight_decay);
  // The first update fills the buffer; without momentum there is nothing to dampen.
  bool damped = !first && momentum != 0;
  float share = damped ? static_cast<float>(1 - c.attrs.real_or("dampening", 0)) : 1.0f;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float g = grad[e] * grad_scale + wd * master[e];
    buffer[e] = momentum * buffer[e] + share * g;
    master[e] = master[e] - rate * (nesterov ? g + momentum * buffer[e] : buffer[e]);
    param[e] = static_cast<T>(master[e]);
  }
}

}  // namespace

void add_sgd(KernelRegistry& registry) {
  add_kernel(registry, "sgd",
             [](const KernelContext& c) { by_type(c.out[2].dtype, [&](auto t) { sgd<decltype(t)>(c); }); });
}

}  // namespace ds::ref
