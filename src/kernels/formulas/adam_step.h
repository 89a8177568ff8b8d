#pragma once
#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/formulas/step_factors.h"
#include "kernels/kernel.h"

namespace ds {

// The constants of a step of `adamw` and `adamw_codes`, computed in f64 and rounded to f32 once
// (Kingma and Ba, "Adam", 2015; decoupled decay: Loshchilov and Hutter, 2019):
//   m = b1 m + (1 - b1) g, s = b2 s + (1 - b2) g^2,
//   p = keep p - rate m / (sqrt(correction2 s) + eps).
// Both bias corrections are stored as factors, because a division takes as long as five
// multiplications.
struct AdamStep : StepFactors {
  static constexpr int kStates = 2;
  float correction2;
  // The factor of the parameter in the L2 penalty, which is added to the gradient; 0 if the decay
  // is decoupled.
  float penalty;

  explicit AdamStep(const KernelContext& c) : StepFactors(c.scalars) {
    const GroupScalars& group = c.scalars.group;
    const double t = static_cast<double>(c.scalars.updates + 1);
    const double lr = c.attrs.integer_or("own_rate", 0) != 0 ? group.adam_lr : group.lr;
    const bool l2 = c.attrs.integer("l2") != 0,
               corrected = c.attrs.integer_or("bias_correction", 1) != 0;
    rate = static_cast<float>(corrected ? lr / (1 - std::pow(group.beta1, t)) : lr);
    correction2 = static_cast<float>(corrected ? 1 / (1 - std::pow(group.beta2, t)) : 1);
    keep = l2 ? 1.0f : static_cast<float>(1 - lr * group.weight_decay);
    penalty = l2 ? decay : 0.0f;
  }
};

// `adamw_codes` rounds three values of an element with bits of one random word
// (kernels/formulas/rounding.h): the mean with the lowest 20 bits, the mean of squares with the
// highest 20, and the master with the bits of Draw::mixed.
inline uint32_t mean_bits(uint32_t word) { return word & 0xfffffu; }
inline uint32_t square_bits(uint32_t word) { return word >> 12; }

}  // namespace ds
