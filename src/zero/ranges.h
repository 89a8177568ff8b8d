#pragma once
#include "core/config/config.h"
#include "core/program/program.h"
#include "zero/policy.h"
#include "zero/step_buffers.h"

namespace ds {

// Cuts the uses of each partitioned bucket into ranges, each of which begins with a gather: where
// the elements of other buckets used in between exceed max_reuse_distance, or where
// max_live_parameters forces it. Where one instruction alone needs more than max_live_parameters,
// nothing else is live beside it.
void insert_gathers(Program& program, const ZeroPlan& plan, const ZeroConfig& zero,
                    const StepBuffers& buffers);

}  // namespace ds
