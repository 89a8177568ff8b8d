#pragma once
#include "kernels/formulas/step_factors.h"
#include "kernels/kernel.h"

namespace ds {

// The constants of a step of `sgd`, `lion` and `adagrad`. kStates is the number of states that the
// optimizer keeps for each element.

// SGD as torch.optim.SGD defines it.
struct SgdStep : StepFactors {
  static constexpr int kStates = 1;
  // The factor of the gradient that is added to the momentum buffer: 1 - dampening.
  float share;
  bool nesterov;

  explicit SgdStep(const KernelContext& c)
      : StepFactors(c.scalars), nesterov(c.attrs.integer("nesterov") != 0) {
    if (c.attrs.integer_or("maximize", 0) != 0) grad_scale = -grad_scale;
    // The first update fills the buffer with the whole gradient. Without momentum, dampening has no
    // effect.
    const bool damped = c.scalars.updates > 0 && momentum != 0;
    share = damped ? static_cast<float>(1 - c.attrs.real_or("dampening", 0)) : 1.0f;
  }
};

struct LionStep : StepFactors {
  static constexpr int kStates = 1;
  explicit LionStep(const KernelContext& c) : StepFactors(c.scalars) {}
};

struct AdagradStep : StepFactors {
  static constexpr int kStates = 1;
  // The initial sum of squares, which the first step adds; 0 in later steps.
  float initial;

  explicit AdagradStep(const KernelContext& c) : StepFactors(c.scalars) {
    const double decayed =
        1 + static_cast<double>(c.scalars.updates) * c.attrs.real_or("lr_decay", 0);
    rate = static_cast<float>(c.scalars.group.lr / decayed);
    initial = c.scalars.updates == 0 ? static_cast<float>(c.attrs.real_or("initial", 0)) : 0.0f;
  }
};

}  // namespace ds
