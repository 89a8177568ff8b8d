#pragma once
#include <string>

#include "cuda/gpu/check.h"
#include "kernels/kernel.h"

namespace ds::test {

// Returns an implementation of `op` for tests/support/conformance that copies operands to the
// session's device, runs the device's kernel and copies results back. It throws if anything but the
// results has changed. Only the implementation that was created last may run.
KernelImpl device_kernel(Session& session, const std::string& op);
// Like device_kernel(), but runs the kernel while a second queue of the device is busy.
KernelImpl device_kernel_under_load(Session& session, const std::string& op);

}  // namespace ds::test
