#pragma once
#include "core/base/ids.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// The mean gradient of all ranks, of every bucket that is trained, where gradients stay on their
// rank and go compressed (ZeroPlan::compression): clip, then the exchange. Of each bucket the whole
// mean, clipped, which is what updates take from here on. own_norms: StepBuffers::own_norms.
IdVector<BucketId, StateRef> emit_compressed_gradients(ProgramBuilder& builder,
                                                       const ZeroPlan& plan, const Config& config,
                                                       BufferId own_norms);

}  // namespace ds
