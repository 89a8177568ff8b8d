#pragma once
#include <string>

#include "cuda/gpu/check.h"
#include "kernels/kernel.h"

namespace ds::test {

// A kernel of the session's device as an implementation of `op` for tests/support/conformance:
// operands go there and results come back. It also throws where something beside the results has
// changed. The latest one made is the one that runs.
KernelImpl device_kernel(Session& session, const std::string& op);
// The same, beside a second queue of the device that is kept busy meanwhile.
KernelImpl device_kernel_under_load(Session& session, const std::string& op);

}  // namespace ds::test
