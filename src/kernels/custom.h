#pragma once
#include <span>
#include <string_view>

#include "core/device/view.h"
#include "core/graph/custom_op.h"
#include "kernels/kernel.h"

namespace ds {

// A custom operation with its kernels. Views have actual extents; one without data is not there:
// the gradient of a result that the loss does not depend on, or of an operand that wants none. Both
// throw to end the run.
class CustomKernels : public CustomOp {
 public:
  using Views = std::span<const TensorView>;
  virtual void forward(Views inputs, Views outputs) const = 0;
  virtual void backward(Views inputs, Views outputs, Views output_grads,
                        Views input_grads) const = 0;
};

// Of `custom` and `custom_dx`, which no registry has: whatever kernels a run is restricted to,
// these are its own.
KernelFn custom_kernel(std::string_view op);

}  // namespace ds
