#include <array>
#include <cmath>

#include "kernels/formulas/update_steps.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675) in the form
// of DeepSpeedCPULion: the sign of +0 is +. docs/reference/ops.md has the order of operations.
void lion(const KernelContext& c) {
  update_of_types<1>(c, [s = LionStep(c)](float grad, float& p, std::array<float, 1>& states) {
    float& m = states[0];
    float g = grad * s.grad_scale;
    // m is weighted with b1 in the direction of the step and with b2 in the momentum that is
    // stored.
    float direction = s.beta1 * m + s.one_beta1 * g;
    p = p * s.keep - std::copysign(s.rate, direction);
    m = s.beta2 * m + s.one_beta2 * g;
  });
}

}  // namespace

void add_lion(KernelRegistry& registry) { add_kernel(registry, "lion", lion); }

}  // namespace ds::ref
