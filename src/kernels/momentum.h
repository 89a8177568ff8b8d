#pragma once
#include <cstdint>

#include "kernels/kernel.h"

namespace ds {

// What `momentum` multiplies its gradient by: a sum of this rank's own leaves, of which there is
// one `ranks`-th of all; with `mean` it is a mean already.
inline double momentum_scale(const KernelContext& c) {
  if (c.attrs.integer_or("mean", 0) != 0) return 1;
  return c.scalars.grad_scale * static_cast<double>(c.attrs.integer("ranks"));
}

}  // namespace ds
