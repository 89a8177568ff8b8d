// 0/1 Adam (Lu et al., arXiv:2202.06009). Between two synchronisations each rank updates its own
// copy of the parameters. At each synchronisation the ranks average the sums of their steps.
#include <cmath>
#include <cstdint>

#include "kernels/formulas/step_factors.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Returns the factor that turns this rank's gradient sum into the mean over its own leaves, which
// are one `ranks`-th of the step's leaves.
float own_scale(const KernelContext& c) {
  return static_cast<float>(c.scalars.grad_scale * static_cast<double>(c.attrs.integer("ranks")));
}

// mean = the mean gradient over this rank's own leaves; 0 in a skipped step.
void own_gradient(const KernelContext& c) {
  const float* grad = c.in[0].as<float>();
  float* mean = c.out[0].as<float>();
  float scale = own_scale(c);
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    mean[e] = c.scalars.skip != 0 ? 0.0f : grad[e] * scale;
}

// Runs one local step of this rank. `steps` is the sum of its steps since the last synchronisation,
// and its parameters are the masters, which are equal on all ranks, plus this sum. With attribute
// `sum`, in the step before a synchronisation, `steps` is then multiplied by sqrt(v) + eps, because
// the ranks add up these products.
template <typename T>
void local_adam(const KernelContext& c) {
  const float *grad = c.in[0].as<float>(), *v = c.in[1].as<float>(), *master = c.in[2].as<float>();
  float *m = c.out[0].as<float>(), *steps = c.out[1].as<float>();
  T* param = c.out.size() > 2 ? c.out[2].as<T>() : nullptr;
  const StepFactors s(c.scalars);
  float scale = own_scale(c);
  bool sum = c.attrs.integer("sum") != 0;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    if (c.scalars.skip == 0) {
      float root = std::sqrt(v[e]) + s.eps, p = master[e] + steps[e];
      m[e] = s.beta1 * m[e] + s.one_beta1 * (grad[e] * scale);
      steps[e] = steps[e] - s.rate * (m[e] / root + s.decay * p);
      if (sum) steps[e] = steps[e] * root;
    }
    if (param) param[e] = static_cast<T>(master[e] + steps[e]);
  }
}

// Runs after a synchronisation, when `steps` is the mean over ranks of the multiplied sums. Adds
// `steps`, divided by sqrt(v) + eps, to the masters, reconstructs the momentum from `steps` and the
// sum of the learning rates, and sets `steps` to 0.
template <typename T>
void synced_adam(const KernelContext& c) {
  const float* v = c.in[0].as<float>();
  float *m = c.out[0].as<float>(), *steps = c.out[1].as<float>(), *master = c.out[2].as<float>();
  T* param = c.out[3].as<T>();
  const StepFactors s(c.scalars);
  float rates = static_cast<float>(c.scalars.group.rate_sum);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    if (c.scalars.skip == 0) {
      if (rates != 0) m[e] = 0.0f - steps[e] / rates;
      master[e] = master[e] + steps[e] / (std::sqrt(v[e]) + s.eps);
      steps[e] = 0;
    }
    param[e] = static_cast<T>(master[e] + steps[e]);
  }
}

}  // namespace

void add_local_adam(KernelRegistry& registry) {
  add_kernel(registry, "own_gradient", own_gradient);
  add_kernel(registry, "local_adam", [](const KernelContext& c) {
    by_type(c.out.size() > 2 ? c.out[2].dtype : DS_DTYPE_F32,
            [&](auto t) { local_adam<decltype(t)>(c); });
  });
  add_by_type<out_type<3>>(registry, "synced_adam", []<typename T>() { return synced_adam<T>; });
}

}  // namespace ds::ref
