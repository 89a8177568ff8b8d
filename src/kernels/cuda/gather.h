#pragma once
#include <cstdint>
#include <span>

#include "core/base/element_run.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {

// Puts what runs name one behind the other, as `width` doubles an element; `room`: of how many
// doubles there is place. Returns the doubles.
int64_t gather_runs(Launcher& launcher, const double* from, double* to,
                    std::span<const ElementRun> runs, int64_t width, int64_t room);
// Puts elements that lie one behind the other where runs name them.
void scatter_runs(Launcher& launcher, const float* from, float* to,
                  std::span<const ElementRun> runs);

}  // namespace ds::cuda
