// The update of 1-bit Adam after its freeze step.
#include <cmath>
#include <cstdint>

#include "kernels/formulas/skipped.h"
#include "kernels/formulas/step_factors.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Adam whose momentum is an input and whose variance no longer changes (Tang et al., "1-bit Adam",
// arXiv:2102.02888). The operations have the same order as in `adamw` without bias correction.
template <typename T>
void frozen_adam(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float *m = c.in[0].as<float>(), *v = c.in[1].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const StepFactors s(c.scalars);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float p = master[e] * s.keep;
    p = p - s.rate * m[e] / (std::sqrt(v[e]) + s.eps);
    master[e] = p;
    param[e] = static_cast<T>(p);
  }
}

}  // namespace

void add_frozen_adam(KernelRegistry& registry) {
  add_by_type<out_type<1>>(registry, "frozen_adam", []<typename T>() { return frozen_adam<T>; });
}

}  // namespace ds::ref
