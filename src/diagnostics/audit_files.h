#pragma once
#include <cstdint>
#include <map>

#include "core/program/program.h"
#include "diagnostics/audit_kernel.h"
#include "engine/observer.h"
#include "kernels/kernel.h"

namespace ds {

// The content that the scratch file of this rank must have: hashes of the extents as the step found
// them, and of those that it has saved since.
class AuditFiles {
 public:
  // Reads every persistent extent that an instruction of the step loads. Call it before the step.
  void begin(const StepSight& sight);
  // Judges a transfer that has ended. The file and the memory must be equal. After a load, they
  // must also be equal to the last save of this extent or, if there was none, to the content before
  // the step.
  Verdict judge(const StepSight& sight, const Instr& instr, const TensorView& memory);

 private:
  struct Held {
    int64_t bytes = 0;
    uint64_t hash = 0;
  };
  // Records the content of an extent, in place of all entries that it overlaps.
  void hold(int64_t place, Held held);
  // By offset in the file.
  std::map<int64_t, Held> held_;
};

}  // namespace ds
