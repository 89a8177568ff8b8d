#pragma once
#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the updates of 1-bit LAMB after its freeze; StepForm::freezing is the first such step.
void emit_compressed_lamb(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                          StepForm form);

// Returns the elements of the joint tensor in which the momenta of all trained parameters travel,
// one parameter after the other without gaps.
ElementRun joined_momenta(const ZeroPlan& plan);

}  // namespace ds
