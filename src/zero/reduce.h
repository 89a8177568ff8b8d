#pragma once
#include "core/program/program.h"
#include "zero/step_buffers.h"
#include "zero/zero_plan.h"

namespace ds {

// Inserts the reduction of each gradient bucket into the accumulators, after the bucket's last
// write. In the last micro-step the granule norms of this rank's part follow. With `overlap` a
// reduction starts only after the next gather of its segment, which is more urgent, and the kernels
// that read its sum are issued after the start of later reductions.
void insert_reductions(Program& program, const ZeroPlan& plan, bool overlap,
                       const StepBuffers& buffers);

// Appends the reduction of one bucket of gradients after the last instruction, for a fragment of
// delegate mode.
void append_reduction(Program& program, const ZeroPlan& plan, BucketId bucket, MicroId micro,
                      BufferId grads);

// Returns the first micro-step for which append_reduction() emits the same instructions, so that
// delegate mode needs few fragments.
MicroId reduced_alike(const ZeroPlan& plan, MicroId micro);

}  // namespace ds
