#include <array>
#include <cmath>

#include "kernels/adam_step.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// All arithmetic in f32. Every implementation follows this order of operations exactly.
void adamw(const KernelContext& c) {
  update_of_types<2>(c, [s = AdamStep(c)](float grad, float& p, std::array<float, 2>& states) {
    auto& [m, v] = states;
    p = p * s.decay;
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
