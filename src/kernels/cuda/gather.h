#pragma once
#include <cstdint>
#include <span>

#include "core/base/element_run.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {

// Copies the elements of `runs` to `to`, in the order of the runs and without gaps; an element is
// `width` doubles. Throws if they are more than `room` doubles. Returns the number of doubles
// copied.
int64_t gather_runs(Launcher& launcher, const double* from, double* to,
                    std::span<const ElementRun> runs, int64_t width, int64_t room);
// The inverse of gather_runs(), for single floats: copies consecutive elements of `from` to the
// elements of `to` that `runs` name.
void scatter_runs(Launcher& launcher, const float* from, float* to,
                  std::span<const ElementRun> runs);

}  // namespace ds::cuda
