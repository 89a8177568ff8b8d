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

// An observer that audits one step on this rank, instruction by instruction. An instruction must
// find its inputs as they were last written; it must change nothing but its outputs; and its
// outputs must be those that its row in docs/reference/ops.md defines. Program, memory and scalars
// are the engine's. Views, groups, offsets in files and expected results are computed here without
// the executor's code, on this object's own threads.
class StepAudit final : public StepObserver {
 public:
  explicit StepAudit(int threads);
  void before(const StepSight& sight, Position at) override;
  void after(const StepSight& sight, Position at) override;

  // Returns the verdicts, by instruction. Call it after the step; if the step failed, later
  // instructions have no verdict.
  const std::vector<Verdict>& verdicts();

 private:
  // An operand in memory. File extents and most operands that are scalars have no Part; scalars are
  // checked separately.
  struct Part {
    // The operand in the present round.
    Operand operand;
    // The address of the operand as the device sees it.
    const std::byte* place;
    // The content before the instruction.
    AuditTensor was;
    // The content after the instruction.
    std::optional<AuditTensor> now;
  };
  // The launch of a kernel that has not been judged yet.
  struct Job {
    InstrId instr;
    KernelRun run;
  };

  // Returns whether two operands share memory.
  static bool overlap(const Part& a, const Part& b);
  // Adds a verdict. The worst verdict of an instruction is kept (Verdict::keep_worse()).
  void add(InstrId instr, Verdict verdict);
  // Adds a failed verdict if the instruction has changed an input.
  void check_inputs(InstrId instr);
  // Adds a failed verdict if the instruction has changed the step's scalars and must not.
  void check_scalars(const StepSight& sight, InstrId instr);
  // Keeps the launch of a kernel, to judge it later together with others. Moves the contents out of
  // parts_.
  void take(const StepSight& sight, Position at);
  // Returns the verdict on a collective, a copy, a file transfer or a decision.
  Verdict judge_move(const StepSight& sight, InstrId instr);
  // Judges the launches that were kept.
  void judge();

  KernelRegistry reference_;
  ThreadTeam team_;
  std::optional<AuditShadow> shadow_;
  // The operands of the present instruction.
  std::vector<Part> parts_;
  // The step's scalars before the present instruction.
  StepScalars scalars_;
  // The launches to be judged, and the bytes of their tensors.
  std::vector<Job> jobs_;
  size_t job_bytes_ = 0;
  AuditFiles files_;
  IdVector<InstrId, Verdict> verdicts_;
};

}  // namespace ds
