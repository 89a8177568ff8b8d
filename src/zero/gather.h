#pragma once
#include <vector>

#include "core/program/builder.h"
#include "core/program/program.h"
#include "zero/policy.h"

namespace ds {

// Instructions that gather all of a cut bucket into `target`: its elements or, where weights are
// quantized, the codes that each rank makes of its own part and all ranks decode alike.
std::vector<Instr> gather_bucket(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 BufferId target);

// Emits the gather of what other ranks have updated of a bucket, where a rank keeps more of its
// parameters than it updates.
void emit_param_gather(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket);

// Emits the gather of what each rank has of a bucket that is cut like states, at `own`, into all of
// `target`.
void emit_gather_of_parts(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                          const StateRef& own, BufferId target);

// The same of the momentum of an optimizer that compresses it: of which every rank keeps the whole.
void emit_momentum_gather(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket);

}  // namespace ds
