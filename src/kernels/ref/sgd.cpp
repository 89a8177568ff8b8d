#include <array>
#include <cmath>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013), in
// the form of torch.optim.SGD: the rate multiplies the buffer, not what enters it.
// docs/reference/ops.md has the order of operations.
void sgd(const KernelContext& c) {
  const GroupScalars& group = c.scalars.group;
  bool nesterov = c.attrs.integer("nesterov") != 0;
  bool first = c.scalars.updates == 0, maximize = c.attrs.integer_or("maximize", 0) != 0;
  float grad_scale = static_cast<float>(maximize ? -c.scalars.grad_scale : c.scalars.grad_scale);
  float rate = static_cast<float>(group.lr), momentum = static_cast<float>(group.momentum),
        wd = static_cast<float>(group.weight_decay);
  // The first update fills the buffer; without momentum there is nothing to dampen.
  bool damped = !first && momentum != 0;
  float share = damped ? static_cast<float>(1 - c.attrs.real_or("dampening", 0)) : 1.0f;
  update_of_types<1>(c, [=](float grad, float& p, std::array<float, 1>& states) {
    float& buffer = states[0];
    float g = grad * grad_scale + wd * p;
    buffer = momentum * buffer + share * g;
    p = p - rate * (nesterov ? g + momentum * buffer : buffer);
  });
}

}  // namespace

void add_sgd(KernelRegistry& registry) { add_kernel(registry, "sgd", sgd); }

}  // namespace ds::ref
