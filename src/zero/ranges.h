#pragma once
#include "core/config/config.h"
#include "core/program/program.h"
#include "zero/step_buffers.h"
#include "zero/zero_plan.h"

namespace ds {

// Cuts the uses of each partitioned bucket into ranges and begins each range with a gather. A cut
// lies where the elements of other buckets used in between exceed max_reuse_distance, or where
// max_live_parameters forces it. If one instruction alone needs more than max_live_parameters, no
// other bucket is live at that instruction.
void insert_gathers(Program& program, const ZeroPlan& plan, const ZeroConfig& zero,
                    const StepBuffers& buffers);

}  // namespace ds
