#pragma once
#include "core/config/config.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the updates of 0/1 Adam in a step whose form is not StepForm::reduced, after the clip.
void emit_local_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                       StepForm form);

}  // namespace ds
