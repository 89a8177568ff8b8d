#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/zero_plan.h"

namespace ds {

// Emits the losses segment, which follows the last backward: all ranks gather the losses of all
// leaves, and the loss and the number of leaves are written to the step's scalars.
void emit_losses(ProgramBuilder& builder, const ZeroPlan& plan);

// Emits the norm of all gradients, from the granule norms of all ranks. The norm decides the scale
// of the gradients and whether the step is skipped.
void emit_clip(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);

// Emits the instruction that computes the ratios of an optimizer with NormRatios. The norms of all
// updates must have been emitted before. Returns the ratios of the granules of all ranks; each is
// at the place of the first rank that holds the granule.
StateRef emit_ratios(ProgramBuilder& builder, const ZeroPlan& plan, const OptimizerConfig& config);

// Like emit_ratios(), for 1-bit LAMB after its freeze.
StateRef emit_frozen_ratios(ProgramBuilder& builder, const ZeroPlan& plan,
                            const OptimizerConfig& config);

// Returns the index, in the ratios of emit_ratios(), of the first granule of the bucket that this
// rank updates. The ratios of the rank's next granules follow.
int64_t first_ratio(const ZeroPlan& plan, BucketId bucket);

// Like emit_clip(), for a step whose gradients stay on their rank. Each rank adds up the squares of
// its own mean gradient, and the norm is the root of the mean of these sums over ranks.
void emit_clip_of_own(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                      BufferId own_norms);

}  // namespace ds
