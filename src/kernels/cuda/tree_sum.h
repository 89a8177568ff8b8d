#pragma once
#include <span>

#include "core/base/dtype.h"
#include "core/device/view.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {

// out = the sum over ranks of parts[rank], each as long as out and of type `from`, in f32 and in
// the order of a reduction: for the device's groups.
void tree_sum(Launcher& launcher, std::span<const void* const> parts, DType from,
              const TensorView& out);

}  // namespace ds::cuda
