#pragma once
#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/kernel.h"

namespace ds {

// Kingma and Ba, "Adam" (2015); decoupled decay: Loshchilov and Hutter (2019). The constants of a
// step of `adamw` and `adamw_codes`, formed in f64 and rounded once. Both corrections of the bias
// are factors: a division takes as long as five products.
struct AdamStep {
  float grad_scale, beta1, one_beta1, beta2, one_beta2, rate, correction2, eps, decay;
  float penalty;  // 0: the gradient has no term of the parameter

  explicit AdamStep(const KernelContext& c) {
    const GroupScalars& group = c.scalars.group;
    const double wd = group.weight_decay, t = static_cast<double>(c.scalars.updates + 1);
    const double lr = c.attrs.integer_or("own_rate", 0) != 0 ? group.adam_lr : group.lr;
    const bool l2 = c.attrs.integer("l2") != 0,
               corrected = c.attrs.integer_or("bias_correction", 1) != 0;
    grad_scale = static_cast<float>(c.scalars.grad_scale);
    beta1 = static_cast<float>(group.beta1);
    one_beta1 = static_cast<float>(1 - group.beta1);
    beta2 = static_cast<float>(group.beta2);
    one_beta2 = static_cast<float>(1 - group.beta2);
    rate = static_cast<float>(corrected ? lr / (1 - std::pow(group.beta1, t)) : lr);
    correction2 = static_cast<float>(corrected ? 1 / (1 - std::pow(group.beta2, t)) : 1);
    eps = static_cast<float>(group.eps);
    decay = l2 ? 1.0f : static_cast<float>(1 - lr * wd);
    penalty = l2 ? static_cast<float>(wd) : 0.0f;
  }
};

// `adamw_codes`: of the word of an element (kernels/rounding.h) the lowest 20 bits round the mean,
// the highest 20 the mean of squares, and those that Draw::mixed says the master.
inline uint32_t mean_bits(uint32_t word) { return word & 0xfffffu; }
inline uint32_t square_bits(uint32_t word) { return word >> 12; }

}  // namespace ds
