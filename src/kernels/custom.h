#pragma once
#include <span>
#include <string_view>

#include "core/device/view.h"
#include "core/graph/custom_op.h"
#include "kernels/kernel.h"

namespace ds {

// A custom operation with its kernels. Views have their actual dimensions. A view without data is
// absent: the gradient of a result that the loss does not depend on, or of an operand whose
// gradient is not wanted. An exception that either function throws ends the run.
class CustomKernels : public CustomOp {
 public:
  using Views = std::span<const TensorView>;
  virtual void forward(Views inputs, Views outputs) const = 0;
  virtual void backward(Views inputs, Views outputs, Views output_grads,
                        Views input_grads) const = 0;
};

// Returns the kernel of `custom` or `custom_dx`. These kernels are not in a registry, so a custom
// operation runs its own kernels even if DS_KERNELS restricts all others.
KernelFn custom_kernel(std::string_view op);

}  // namespace ds
