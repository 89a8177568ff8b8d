#include <array>
#include <cmath>

#include "kernels/formulas/adam_step.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// AdamW with the constants of kernels/formulas/adam_step.h. All arithmetic is in f32, and every
// implementation follows this order of operations exactly.
void adamw(const KernelContext& c) {
  update_of_types<2>(c, [s = AdamStep(c)](float grad, float& p, std::array<float, 2>& states) {
    auto& [m, v] = states;
    // Decoupled decay shrinks the parameter first; an L2 penalty is added to the gradient instead.
    p = p * s.keep;
    float g = grad * s.grad_scale;
    if (s.penalty != 0) g = g + s.penalty * p;
    m = s.beta1 * m + s.one_beta1 * g;
    v = s.beta2 * v + s.one_beta2 * (g * g);
    p = p - (s.rate * m) / (std::sqrt(v * s.correction2) + s.eps);
  });
}

}  // namespace

void add_adamw(KernelRegistry& registry) { add_kernel(registry, "adamw", adamw); }

}  // namespace ds::ref
