#pragma once
#include "core/base/ids.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the clip and the compressed exchange of gradients that have stayed on their rank
// (ZeroPlan::compression). Returns, for each trained bucket, the whole clipped mean gradient of all
// ranks, which the updates read. `own_norms` is StepBuffers::own_norms.
IdVector<BucketId, StateRef> emit_compressed_gradients(ProgramBuilder& builder,
                                                       const ZeroPlan& plan, const Config& config,
                                                       BufferId own_norms);

}  // namespace ds
