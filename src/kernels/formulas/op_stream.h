#pragma once
#include <cstdint>

#include "core/base/random.h"
#include "kernels/kernel.h"

namespace ds {

// Returns the random stream of a launch, which seed, step, leaf and attribute `op` identify.
inline RandomStream op_stream(const KernelContext& c) {
  return {c.scalars.seed, static_cast<uint32_t>(c.scalars.step), static_cast<uint32_t>(c.leaf),
          static_cast<uint32_t>(c.attrs.integer("op"))};
}

}  // namespace ds
