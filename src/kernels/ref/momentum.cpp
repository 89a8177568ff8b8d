#include "kernels/momentum.h"

#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// m takes up the mean gradient of this rank's own leaves: of all leaves of the step it has one
// `ranks`-th.
void momentum(const KernelContext& c) {
  if (c.scalars.skip != 0) return;
  const float* grad = c.in[0].as<float>();
  float* m = c.out[0].as<float>();
  float scale = static_cast<float>(momentum_scale(c));
  float b1 = static_cast<float>(c.scalars.group.beta1);
  float one_b1 = static_cast<float>(1 - c.scalars.group.beta1);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) m[e] = b1 * m[e] + one_b1 * (grad[e] * scale);
}

}  // namespace

void add_momentum(KernelRegistry& registry) { add_kernel(registry, "momentum", momentum); }

}  // namespace ds::ref
