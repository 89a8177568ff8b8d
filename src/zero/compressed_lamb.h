#pragma once
#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"
#include "zero/policy.h"

namespace ds {

// The updates of 1-bit LAMB behind its freeze, and in the first step there (StepForm::freezing).
void emit_compressed_lamb(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                          StepForm form);

// All trained parameters, one behind the other without gaps: the one tensor as which their momenta
// go.
ElementRun joined_momenta(const ZeroPlan& plan);

}  // namespace ds
