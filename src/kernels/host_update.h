#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/group_scalars.h"
#include "core/graph/custom_op.h"
#include "kernels/kernel.h"

namespace ds {

// Consecutive elements of one parameter that a function of the host updates.
struct HostElements {
  // The number of the parameter, and the first element within it.
  int64_t param = 0, first = 0;
  // The number of this update of the parameter, from 1 on.
  int64_t update = 1;
  // The elements, which change in place, and their mean gradients after clipping.
  std::span<float> values;
  std::span<const float> grads;
  // The elements of each state, which change in place.
  std::vector<float*> states;
  GroupScalars numbers;
};

// An update by a function of the host. An exception of update() ends the run.
class HostUpdate : public CustomOp {
 public:
  virtual void update(const HostElements& elements) const = 0;
};

// Returns the kernel of instruction `callback`, whose KernelContext::custom is a HostUpdate. Like
// those of custom operations, it is not in a registry.
KernelFn host_update_kernel();

}  // namespace ds
