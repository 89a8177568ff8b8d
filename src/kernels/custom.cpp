// Launches of custom operations: they unpack the operands of the launch and call the callbacks of
// the host application.
#include "kernels/custom.h"

#include <string>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

const CustomKernels& kernels_of(const KernelContext& c) {
  ensure(c.custom != nullptr, "custom operation '{}' has no callbacks", c.attrs.text("name"));
  return static_cast<const CustomKernels&>(*c.custom);
}

void custom(const KernelContext& c) { kernels_of(c).forward(c.in, c.out); }

// Returns one view for each mark: the next of `views` for '1', and a view without data for '0'.
std::vector<TensorView> spread(const std::string& marks, std::span<const TensorView> views) {
  std::vector<TensorView> out(marks.size());
  size_t next = 0;
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks[i] == '1') out[i] = views[next++];
  }
  return out;
}

void custom_dx(const KernelContext& c) {
  // Operands are the inputs, the results, and the gradients of results that have one (`given`).
  // `wanted` marks the inputs whose gradients are outputs.
  const std::string &wanted = c.attrs.text("wanted"), &given = c.attrs.text("given");
  std::span<const TensorView> inputs = c.in.first(wanted.size()),
                              outputs = c.in.subspan(wanted.size(), given.size()),
                              grads = c.in.subspan(wanted.size() + given.size());
  kernels_of(c).backward(inputs, outputs, spread(given, grads), spread(wanted, c.out));
}

}  // namespace

KernelFn custom_kernel(std::string_view op) { return op == "custom" ? custom : custom_dx; }

}  // namespace ds
