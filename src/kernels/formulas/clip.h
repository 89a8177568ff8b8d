#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/kernel.h"

namespace ds {

// Computes the results of `clip` (grad_norm, grad_scale and skip) from `squares`, the sum of the
// squares of the gradient sum. The norm is the norm of the mean gradient or, if each of `ranks`
// ranks keeps its own gradient, the root mean square of their norms. grad_scale, by which the
// update multiplies gradient sums, undoes the loss scale, averages and clips at once. The step is
// skipped if its weight is 0 or, unless `unchecked` is set, if the norm or the loss is not finite.
inline void clip_by(const KernelContext& c, double squares) {
  auto& scalars = *c.out[0].as<StepScalars>();
  const double scale = divisor_of(scalars);
  const double norm =
      std::sqrt(squares * static_cast<double>(c.attrs.integer_or("ranks", 1))) / scale;
  const double max_norm = c.attrs.real("max_norm");
  const double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  scalars.grad_norm = norm;
  scalars.grad_scale = coefficient / scale;
  bool finite = std::isfinite(norm) && std::isfinite(scalars.loss);
  if (c.attrs.integer_or("unchecked", 0) != 0) finite = true;
  scalars.skip = finite && scalars.weight > 0 ? 0 : 1;
}

}  // namespace ds
