#pragma once
#include <cstdint>
#include <map>

#include "core/program/program.h"
#include "diagnostics/audit_kernel.h"
#include "engine/observer.h"
#include "kernels/kernel.h"

namespace ds {

// What the scratch file of this rank must hold: hashes of what the step found there, and of what it
// saved since.
class AuditFiles {
 public:
  // Before the step: reads every persistent extent that one of its loads names.
  void begin(const StepSight& sight);
  // Behind a transfer that has ended. The file must now hold what memory holds, which after a load
  // is also what was there before the step or what was saved to this place last.
  Verdict judge(const StepSight& sight, const Instr& instr, const TensorView& memory);

 private:
  struct Held {
    int64_t bytes = 0;
    uint64_t hash = 0;
  };
  void hold(int64_t place, Held held);  // instead of all that it overlaps
  std::map<int64_t, Held> held_;        // by place in the file
};

}  // namespace ds
