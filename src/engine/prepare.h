#pragma once
#include <cstdint>

#include "core/program/program.h"
#include "exec/queues.h"
#include "kernels/kernel.h"

namespace ds {

// Lets the kernels of a program allocate now, at the bound of n, the memory that they keep between
// launches (KernelImpl::prepare), so that the first step needs no memory beyond the overhead row.
// Returns the largest number of bytes that a single launch allocates on the heap and frees again.
// Instructions on queues that run no host code are skipped, because their memory belongs to the
// queue.
int64_t prepare_kernels(const Program& program, const KernelRegistry& kernels,
                        const RankQueues& queues);

}  // namespace ds
