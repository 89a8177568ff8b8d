#pragma once
#include <string>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"
#include "zero/policy.h"

namespace ds {

// The update segment of a step of another form than StepForm::reduced: clip, what the ranks
// exchange, optimizer, gather of what is not partitioned. own_norms: StepBuffers::own_norms.
void emit_compressed_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                            StepForm form, BufferId own_norms);

// What such forms of a step move and keep, a line for reports.
std::string compression_note(const ZeroPlan& plan, const Config& config);

}  // namespace ds
