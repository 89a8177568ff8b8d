#pragma once
#include "core/graph/graph.h"
#include "core/program/builder.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the init segment. Every rank draws only the granules that it updates. A slice gets the
// values that the whole parameter would have at the same places.
void emit_init(ProgramBuilder& builder, const ZeroPlan& plan,
               const IdVector<ParamId, Parameter>& params);

// Emits the refresh segment, which computes parameters from masters after a checkpoint was loaded
// or a master was edited.
void emit_refresh(ProgramBuilder& builder, const ZeroPlan& plan);

}  // namespace ds
