#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// The losses segment, behind the last backward: losses of all leaves on all ranks, which says how
// many leaves there are.
void emit_losses(ProgramBuilder& builder, const ZeroPlan& plan);

// The norm of all gradients, from the granule norms of all ranks: scale and skip decision of the
// step.
void emit_clip(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);

// For an optimizer with NormRatios, behind the norms of all its updates: the ratios of the granules
// of all ranks, of which each is at the place of the first rank that holds the granule.
StateRef emit_ratios(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);
// The same of 1-bit LAMB behind its freeze.
StateRef emit_frozen_ratios(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);
// Among these that of the first granule of the bucket that this rank updates; the next ones follow
// it.
int64_t first_ratio(const ZeroPlan& plan, BucketId bucket);
// As emit_clip, of a step whose gradients stay on their rank: each rank adds up the squares of its
// own, and all ranks get as norm the root of the mean square of the norms of their mean gradients.
void emit_clip_of_own(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                      BufferId own_norms);

}  // namespace ds
