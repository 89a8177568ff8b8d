#include <array>
#include <cmath>

#include "kernels/formulas/update_steps.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// SGD with momentum (Sutskever et al., "On the importance of initialization and momentum in deep
// learning", 2013) in the form of torch.optim.SGD: the learning rate multiplies the buffer, not the
// gradient that is added to it. docs/reference/ops.md has the order of operations.
void sgd(const KernelContext& c) {
  update_of_types<1>(c, [s = SgdStep(c)](float grad, float& p, std::array<float, 1>& states) {
    float& buffer = states[0];
    float g = grad * s.grad_scale + s.decay * p;
    buffer = s.momentum * buffer + s.share * g;
    p = p - s.rate * (s.nesterov ? g + s.momentum * buffer : buffer);
  });
}

}  // namespace

void add_sgd(KernelRegistry& registry) { add_kernel(registry, "sgd", sgd); }

}  // namespace ds::ref
