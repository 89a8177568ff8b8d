#pragma once
#include "core/program/program.h"
#include "zero/policy.h"
#include "zero/step_buffers.h"

namespace ds {

// After the last write of each gradient bucket: reduce_scatter or all_reduce into the accumulators,
// in the last micro-step followed by the granule norms of this rank's part. With overlap a
// reduction is issued only after the next gather, so that the gather can be prefetched across it.
void insert_reductions(Program& program, const ZeroPlan& plan, bool overlap,
                       const StepBuffers& buffers);

// The same reduction of one bucket of gradients behind the last instruction (a fragment of delegate
// mode).
void append_reduction(Program& program, const ZeroPlan& plan, BucketId bucket, MicroId micro,
                      BufferId grads);

// The first micro-step in which append_reduction says the same.
MicroId reduced_alike(const ZeroPlan& plan, MicroId micro);

}  // namespace ds
