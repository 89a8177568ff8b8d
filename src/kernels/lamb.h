#pragma once
#include <cmath>
#include <cstdint>

#include "core/base/attrs.h"
#include "core/base/group_scalars.h"
#include "core/device/scalars.h"

namespace ds {

// The constants of one step of LAMB (You et al., "Large Batch Optimization for Deep Learning:
// Training BERT in 76 minutes", 2020, in the form of DeepSpeed's FusedLamb), formed in f64 and
// rounded once.
struct LambStep {
  float grad_scale, beta1, one_beta1, beta2, one_beta2, eps, decay, rate;
  bool inside;  // eps is added below the root

  LambStep(const StepScalars& scalars, const Attrs& attrs) {
    const GroupScalars& group = scalars.group;
    grad_scale = static_cast<float>(scalars.grad_scale);
    beta1 = static_cast<float>(group.beta1);
    one_beta1 = static_cast<float>(1 - group.beta1);
    beta2 = static_cast<float>(group.beta2);
    one_beta2 = static_cast<float>(1 - group.beta2);
    eps = static_cast<float>(group.eps);
    decay = static_cast<float>(group.weight_decay);
    inside = attrs.integer("eps_inside_sqrt") != 0;
    double t = static_cast<double>(scalars.updates + 1), correction = 1;
    if (attrs.integer_or("bias_correction", 1) != 0)
      correction = std::sqrt(1 - std::pow(group.beta2, t)) / (1 - std::pow(group.beta1, t));
    rate = static_cast<float>(group.lr * correction);
  }
};

}  // namespace ds
