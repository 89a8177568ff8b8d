#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/program/program.h"
#include "engine/observer.h"
#include "kernels/kernel.h"

namespace ds {

// The content that every buffer in memory must have: the bytes that instructions have written to
// it. The copies of buffers do not share memory, so the audit notices a value that is overwritten,
// by another buffer, an instruction or anything else, between its write and its read.
class AuditShadow {
 public:
  // Copies the content of the persistent buffers.
  explicit AuditShadow(const StepSight& sight);

  // Returns how the content of an operand differs from what was written, as a message, or "" if it
  // does not.
  std::string difference(const Operand& operand, const TensorView& view) const;
  // Records that an instruction has written the operand, whose content is `view`.
  void written(const StepSight& sight, const Operand& operand, const TensorView& view,
               InstrId instr);
  // Records that an instruction has read or written the operand. If that was the last use of a
  // transient buffer, its copy is dropped.
  void ended(const Operand& operand);

 private:
  struct Copy {
    std::vector<std::byte> bytes;
    // The last instruction that wrote the buffer. If it does not exist, the buffer was written
    // before the step.
    InstrId writer;
  };
  const Program& program_;
  // A buffer that is not in use has a copy without bytes.
  IdVector<BufferId, Copy> copies_;
};

}  // namespace ds
