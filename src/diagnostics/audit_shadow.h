#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/program/program.h"
#include "engine/observer.h"
#include "kernels/kernel.h"

namespace ds {

// What every buffer in memory must hold: what instructions have written to it. Each has memory of
// its own here, so that a value which another buffer, another instruction or anything else
// overwrites between its write and its read is seen.
class AuditShadow {
 public:
  // Takes what the persistent buffers hold.
  explicit AuditShadow(const StepSight& sight);

  // "" or what an instruction finds in this operand instead of what was written.
  std::string difference(const Operand& operand, const TensorView& view) const;
  // An instruction has written the operand, or has read it for the last time.
  void written(const StepSight& sight, const Operand& operand, const TensorView& view,
               InstrId instr);
  void ended(const Operand& operand);

 private:
  struct Copy {
    std::vector<std::byte> bytes;
    InstrId writer;  // none: written before the step
  };
  const Program& program_;
  IdVector<BufferId, Copy> copies_;  // without bytes: not in use
};

}  // namespace ds
