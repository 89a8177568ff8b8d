#pragma once
#include <span>

#include "core/base/dtype.h"
#include "core/device/view.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {

// Enqueues out = the sum over ranks of parts[rank], in f32 and in the order of a reduction. Each
// part is as long as `out` and of type `from`. Collectives of the device use it as their reduction.
void tree_sum(Launcher& launcher, std::span<const void* const> parts, DType from,
              const TensorView& out);

}  // namespace ds::cuda
