#pragma once
#include <cstdint>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the update segment: clip, optimizer, and the gather of parameters that a rank keeps but
// does not update. `own_norms` is StepBuffers::own_norms if gradients travel compressed
// (ZeroPlan::compression), otherwise none.
void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                 BufferId own_norms = {});

}  // namespace ds
