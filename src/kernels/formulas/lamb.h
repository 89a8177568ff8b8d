#pragma once
#include <cmath>
#include <cstdint>

#include "core/base/attrs.h"
#include "core/base/group_scalars.h"
#include "core/device/scalars.h"
#include "kernels/formulas/step_factors.h"

namespace ds {

// The constants of one step of LAMB, computed in f64 and rounded to f32 once (You et al., "Large
// Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020, in the form of
// DeepSpeed's FusedLamb).
struct LambStep : StepFactors {
  // Whether eps is added inside the square root instead of outside.
  bool inside;

  LambStep(const StepScalars& scalars, const Attrs& attrs)
      : StepFactors(scalars), inside(attrs.integer("eps_inside_sqrt") != 0) {
    const GroupScalars& group = scalars.group;
    double t = static_cast<double>(scalars.updates + 1), correction = 1;
    if (attrs.integer_or("bias_correction", 1) != 0)
      correction = std::sqrt(1 - std::pow(group.beta2, t)) / (1 - std::pow(group.beta1, t));
    rate = static_cast<float>(group.lr * correction);
  }
};

}  // namespace ds
