#pragma once
#include <cstdint>
#include <functional>

#include "comm/communicator.h"
#include "core/program/program.h"
#include "engine/runtime.h"
#include "engine/step_control.h"
#include "exec/executor.h"
#include "zero/zero_plan.h"

namespace ds {

// The state of a step between two instructions. References point to the engine's own objects, which
// change from instruction to instruction.
struct StepSight {
  const Program& program;
  const ZeroPlan& zero;
  // The runtime, through which an observer can read buffers of the program in any tier.
  const Runtime& runtime;
  // The rows n of every micro-step.
  int64_t tokens = 0;
  // The numbers of the step. Loss and leaves are known after the instruction `losses`.
  const StepControl& control;

  // Returns the communicator of all ranks, which an observer may use for its collectives.
  Communicator& comm() const { return runtime.comm(); }
};

// An object that is called before and after each instruction of a step. Nothing is in flight then:
// a file transfer has ended when `after` is called.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void before(const StepSight& sight, Position at) = 0;
  virtual void after(const StepSight& sight, Position at) = 0;
};

// Runs an executor from its present position up to `end`, instruction by instruction, and shows
// each instruction that does anything in its micro-step to the observer. `perform` [nullable] is
// called after each instruction, before the observer, and does the host's part at that position.
void run_observed(Executor& executor, Position end, const StepSight& sight, StepObserver& observer,
                  const std::function<void(Position)>& perform = {});

}  // namespace ds
