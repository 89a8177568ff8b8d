#pragma once
#include "core/config/config.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"
#include "zero/policy.h"

namespace ds {

// The updates of 0/1 Adam in a step of a form other than StepForm::reduced, behind the clip.
void emit_local_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                       StepForm form);

}  // namespace ds
