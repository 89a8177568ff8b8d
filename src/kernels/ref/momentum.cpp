// The momentum that 1-bit optimizers send in place of gradients.
#include "kernels/formulas/momentum.h"

#include <cstdint>

#include "kernels/formulas/step_factors.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Updates the momentum m of this rank with the mean gradient over its own leaves
// (kernels/formulas/momentum.h).
void momentum(const KernelContext& c) {
  if (c.scalars.skip != 0) return;
  const float* grad = c.in[0].as<float>();
  float* m = c.out[0].as<float>();
  float scale = static_cast<float>(momentum_scale(c));
  const StepFactors s(c.scalars);
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    m[e] = s.beta1 * m[e] + s.one_beta1 * (grad[e] * scale);
}

}  // namespace

void add_momentum(KernelRegistry& registry) { add_kernel(registry, "momentum", momentum); }

}  // namespace ds::ref
