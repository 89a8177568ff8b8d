#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/kernel.h"

namespace ds {

// What `clip` makes of the sum of the squares of a gradient: the norm of the mean gradient or, of
// gradients that `ranks` ranks have kept to themselves, the root of the mean square of their norms.
// What the update multiplies sums by undoes the loss scale, averages and clips at once.
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
