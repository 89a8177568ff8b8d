#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// What sub_group_size 0, which asks for the least memory, stands for: fewer elements are not worth an
// instruction.
inline constexpr int64_t kLeastUpdateGroup = 1 << 20;

// Elements that one update instruction covers at most: sub_group_size in whole file blocks of every element
// type.
int64_t update_group(const ZeroConfig& zero);

// The update segment: clip, optimizer, gather of what is not partitioned.
void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);

}  // namespace ds
