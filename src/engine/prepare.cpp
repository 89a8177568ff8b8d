#include "engine/prepare.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/program/operand_view.h"

namespace ds {
namespace {

bool may_prepare(const KernelRegistry& kernels, const std::string& op) {
  const std::vector<KernelImpl>& all = kernels.all();
  return std::any_of(all.begin(), all.end(),
                     [&](const KernelImpl& k) { return k.prepare && k.op == op; });
}

}  // namespace

int64_t prepare_kernels(const Program& program, const KernelRegistry& kernels,
                        const RankQueues& queues) {
  const StepScalars scalars;
  int64_t most = 0;
  std::vector<TensorView> in, out;
  std::vector<DType> in_types, out_types;
  for (const Instr& instr : program.instrs) {
    if (!may_prepare(kernels, instr.def->name) || !queues.of(instr.queue)->runs_host_code())
      continue;
    in.clear(), out.clear(), in_types.clear(), out_types.clear();
    // Views have the shapes at the bound and no data. Scalars are not among the views, because a
    // kernel receives them separately.
    for (const Operand& o : instr.operands) {
      bool read = o.access == Access::read;
      if (read && program.buffers[o.buffer].holds == Holds::scalars) continue;
      (read ? in : out).push_back(operand_view(o, program.bound));
      (read ? in_types : out_types).push_back(o.type.dtype);
    }
    const KernelImpl& kernel = kernels.find({instr.def->name, in_types, out_types, instr.attrs});
    if (kernel.prepare)
      most = std::max(
          most, kernel.prepare({in, out, instr.attrs, scalars, 0, queues.team(Queue::compute)}));
  }
  return most;
}

}  // namespace ds
