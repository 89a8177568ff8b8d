#include <array>
#include <cmath>

#include "kernels/formulas/update_steps.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// Adagrad (Duchi, Hazan and Singer, "Adaptive Subgradient Methods", 2011) in the form of
// torch.optim.Adagrad: sum += g^2, p -= rate g / (sqrt(sum) + eps). docs/reference/ops.md has the
// order of operations.
void adagrad(const KernelContext& c) {
  update_of_types<1>(c, [s = AdagradStep(c)](float grad, float& p, std::array<float, 1>& states) {
    float& sum = states[0];
    float g = grad * s.grad_scale + s.decay * p;
    sum = (sum + s.initial) + g * g;
    p = p - (s.rate * g) / (std::sqrt(sum) + s.eps);
  });
}

}  // namespace

void add_adagrad(KernelRegistry& registry) { add_kernel(registry, "adagrad", adagrad); }

}  // namespace ds::ref
