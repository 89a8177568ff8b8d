#pragma once
#include <cstdint>

#include "core/program/program.h"
#include "exec/queues.h"
#include "kernels/kernel.h"

namespace ds {

// Lets the kernels of a program take, now and at the bound, what they keep between launches
// (KernelImpl::prepare), so that the first step takes no memory that the overhead row lacks.
// Returns the most bytes that one launch takes from the heap and gives back. Queues that run no
// host code have their own.
int64_t prepare_kernels(const Program& program, const KernelRegistry& kernels,
                        const RankQueues& queues);

}  // namespace ds
