#pragma once
#include <cstdint>

#include "kernels/kernel.h"

namespace ds {

// Returns the factor by which `momentum` multiplies its gradient. With attribute `mean`, the
// gradient is already a mean. Otherwise it is the sum over this rank's leaves. grad_scale divides
// by the weight of the leaves of all `ranks` ranks, so the mean of one rank's leaves needs the
// factor grad_scale * ranks.
inline double momentum_scale(const KernelContext& c) {
  if (c.attrs.integer_or("mean", 0) != 0) return 1;
  return c.scalars.grad_scale * static_cast<double>(c.attrs.integer("ranks"));
}

}  // namespace ds
