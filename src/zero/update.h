#pragma once
#include <cstdint>
#include <functional>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// Elements that one update instruction covers at most: sub_group_size in whole file blocks of every element
// type.
int64_t update_group(const ZeroConfig& zero);

// Emits an update of elements [first, first + count) of what it is for; whole: of all of these.
using EmitUpdate = std::function<Instr&(int64_t first, int64_t count, bool whole)>;
// Has an update emitted for each group of the elements [low, low + numel) of a bucket of which any is
// trained, and says which these are, and of which group of parameters. first counts from `low`.
void for_update_groups(const ZeroPlan& plan, const Config& config, BucketId bucket, int64_t low,
                       int64_t numel, const EmitUpdate& emit);

// The update segment: clip, optimizer, gather of what is not partitioned.
void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);

}  // namespace ds
