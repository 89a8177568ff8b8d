#pragma once
#include "core/base/group_scalars.h"
#include "core/device/scalars.h"

namespace ds {

// The factors that updates compute with, derived from a step's scalars in f64 and rounded to f32
// once. docs/reference/ops.md fixes the order of the f32 operations that use them, so that all
// implementations agree.
struct StepFactors {
  float grad_scale, rate, eps, beta1, one_beta1, beta2, one_beta2, momentum, one_momentum;
  // The weight decay.
  float decay;
  // The factor of a parameter under decoupled decay, 1 - lr * decay.
  float keep;

  explicit StepFactors(const StepScalars& scalars) {
    const GroupScalars& group = scalars.group;
    grad_scale = static_cast<float>(scalars.grad_scale);
    rate = static_cast<float>(group.lr);
    eps = static_cast<float>(group.eps);
    beta1 = static_cast<float>(group.beta1);
    one_beta1 = static_cast<float>(1 - group.beta1);
    beta2 = static_cast<float>(group.beta2);
    one_beta2 = static_cast<float>(1 - group.beta2);
    momentum = static_cast<float>(group.momentum);
    one_momentum = static_cast<float>(1 - group.momentum);
    decay = static_cast<float>(group.weight_decay);
    keep = static_cast<float>(1 - group.lr * group.weight_decay);
  }
};

}  // namespace ds
