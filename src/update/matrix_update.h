#pragma once
#include <string>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the updates of all buckets of matrices (Optimizer::matrices).
void emit_matrix_updates(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);

// Returns a note for reports with the bytes that these updates gather; "" if the plan updates no
// matrix.
std::string matrix_updates_note(const ZeroPlan& plan);

}  // namespace ds
