#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/device/scalars.h"
#include "core/device/thread_team.h"
#include "core/program/program.h"
#include "diagnostics/audit_comm.h"
#include "diagnostics/audit_files.h"
#include "diagnostics/audit_kernel.h"
#include "diagnostics/audit_shadow.h"
#include "engine/observer.h"
#include "kernels/kernel.h"

namespace ds {

// Audits one step on this rank, instruction by instruction: what each of them reads must be what
// was written, it may change nothing but its outputs, and those must be what its row in
// docs/reference/ops.md says. Program, memory and scalars are the engine's; views, groups, places
// in files and results are worked out here, without the executor's code, on threads of this object.
class StepAudit final : public StepObserver {
 public:
  explicit StepAudit(int threads);
  void before(const StepSight& sight, Position at) override;
  void after(const StepSight& sight, Position at) override;

  // By instruction, once the step has ended; of a step that failed, as far as it came.
  const std::vector<Verdict>& verdicts();

 private:
  // An operand in memory, which file extents and the scalars are not.
  struct Part {
    Operand operand;         // in its round
    const std::byte* place;  // of the device
    AuditTensor was;
    std::optional<AuditTensor> now;  // behind the instruction
  };
  struct Job {
    InstrId instr;
    KernelRun run;
  };

  static bool overlap(const Part& a, const Part& b);
  void add(InstrId instr, Verdict verdict);
  void check_inputs(InstrId instr);
  void check_scalars(const StepSight& sight, InstrId instr);
  // Keeps the launch of a kernel, to be judged with others.
  void take(const StepSight& sight, Position at);
  Verdict judge_move(const StepSight& sight, InstrId instr);
  void judge();

  KernelRegistry reference_;
  ThreadTeam team_;
  std::optional<AuditShadow> shadow_;
  std::vector<Part> parts_;  // of the running instruction
  StepScalars scalars_;      // before it
  std::vector<Job> jobs_;
  size_t job_bytes_ = 0;
  AuditFiles files_;
  IdVector<InstrId, Verdict> verdicts_;
};

}  // namespace ds
