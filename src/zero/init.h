#pragma once
#include "core/graph/graph.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// The init segment: every rank draws its own granules; the whole model never exists on one rank. Of
// a slice it draws what the whole parameter has at its places.
void emit_init(ProgramBuilder& builder, const ZeroPlan& plan,
               const IdVector<ParamId, Parameter>& params);
// Parameters from masters, after a checkpoint was loaded or a master was edited; errors of
// quantization begin again from 0.
void emit_refresh(ProgramBuilder& builder, const ZeroPlan& plan);

}  // namespace ds
