#pragma once
#include <vector>

#include "core/program/builder.h"
#include "core/program/program.h"
#include "zero/zero_plan.h"

namespace ds {

// Returns the instructions that gather the whole of a cut bucket into `target`. If weights are
// quantized, each rank encodes its own part, and every rank decodes the codes of all parts.
std::vector<Instr> gather_bucket(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 BufferId target);

// Emits the gather of the parameters that other ranks have updated, if this rank keeps more of the
// bucket than it updates.
void emit_param_gather(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket);

// Emits the gather of a tensor that is cut as the states of the bucket are: `own` is this rank's
// part, and the whole tensor fills `target`.
void emit_gather_of_parts(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                          const StateRef& own, BufferId target);

// Emits the gather of the momentum for an optimizer that compresses it. Every rank keeps the whole
// momentum and begins with the part that it updates.
void emit_momentum_gather(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket);

}  // namespace ds
