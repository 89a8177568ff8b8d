#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/program/instruction.h"
#include "diagnostics/audit_kernel.h"
#include "kernels/kernel.h"

namespace ds {

// The ranks of one collective, and which of them this one is.
struct AuditGroup {
  std::vector<int> ranks;
  size_t own = 0;
};

// Makes an all_gather, reduce_scatter, all_reduce or all_to_all again and compares its result bit
// by bit. What the ranks gave travels by broadcasts over all ranks in small pieces, whatever the
// group and the collective; sums are those of the reference kernels: f32, neighbours first.
// Collective over `all`, where every rank gives as many bytes. in: as it was before.
Verdict judge_collective(Op op, const AuditGroup& group, const TensorView& in,
                         const TensorView& out, Communicator& all, const std::string& label);

}  // namespace ds
