#pragma once
#include <string>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// Emits the updates of all buckets of matrices (Optimizer::matrices); nothing where there are none.
void emit_matrix_updates(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);

// What they move, as a line for people; "" where nothing.
std::string matrix_updates_note(const ZeroPlan& plan);

}  // namespace ds
