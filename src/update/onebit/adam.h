#pragma once
#include <string>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the update segment of a step whose form is not StepForm::reduced: clip, the exchange
// between ranks, optimizer, and the gather of parameters that a rank keeps but does not update.
// `own_norms` is StepBuffers::own_norms.
void emit_compressed_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                            StepForm form, BufferId own_norms);

// Returns a note for reports with the bytes that these steps receive from other ranks, and the
// bytes of momentum or own steps and of errors that a rank keeps for them.
std::string compression_note(const ZeroPlan& plan, const OptimizerConfig& config);

}  // namespace ds
