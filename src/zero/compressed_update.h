#pragma once
#include <string>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// The update segment of a step of StepForm::compressed: clip, momentum, its compressed all-reduce, optimizer,
// gather of what is not partitioned. own_norms: StepBuffers::own_norms.
void emit_compressed_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                            BufferId own_norms);

// What that form of a step moves and keeps, a line for reports.
std::string compression_note(const ZeroPlan& plan, const Config& config);

}  // namespace ds
