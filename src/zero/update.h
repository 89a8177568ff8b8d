#pragma once
#include <cstdint>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// The update segment: clip, optimizer, gather of what is not partitioned. own_norms:
// StepBuffers::own_norms, where gradients go compressed (ZeroPlan::compression).
void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                 BufferId own_norms = {});

}  // namespace ds
