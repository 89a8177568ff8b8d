#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/program/instruction.h"
#include "diagnostics/audit_kernel.h"
#include "kernels/kernel.h"

namespace ds {

// The ranks of a collective, and this rank's index among them.
struct AuditGroup {
  std::vector<int> ranks;
  size_t own = 0;
};

// Repeats an all_gather, reduce_scatter, all_reduce or all_to_all and compares its result `out` bit
// by bit. Every rank of `all` broadcasts its input `in`, as it was before the collective, in small
// pieces, whatever the group and the collective are. Sums are computed as by the reference kernels:
// in f32, neighbouring ranks first. Collective over `all`; every rank must have the same number of
// input bytes.
Verdict judge_collective(Op op, const AuditGroup& group, const TensorView& in,
                         const TensorView& out, Communicator& all, const std::string& label);

}  // namespace ds
