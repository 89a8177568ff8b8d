#pragma once
#include "core/config/config.h"
#include "core/program/program.h"
#include "zero/step_buffers.h"
#include "zero/zero_plan.h"

namespace ds {

// Cuts the uses of each partitioned bucket into ranges and begins each range with a gather. A cut
// is placed between two uses if the buckets used in between have more than max_reuse_distance
// elements, or if max_live_parameters forces it. If one instruction alone needs more than
// max_live_parameters, no other bucket is live at that instruction, except those under lease.
void insert_gathers(Program& program, const ZeroPlan& plan, const ZeroConfig& zero,
                    const StepBuffers& buffers);

}  // namespace ds
