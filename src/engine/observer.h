#pragma once
#include <cstdint>
#include <functional>

#include "comm/communicator.h"
#include "core/program/program.h"
#include "engine/runtime.h"
#include "engine/step_control.h"
#include "exec/executor.h"
#include "zero/policy.h"

namespace ds {

// What a step runs on. References are to the engine's own: they change from instruction to
// instruction.
struct StepSight {
  const Program& program;
  const ZeroPlan& zero;
  const Runtime& runtime;      // reads buffers of the program, wherever they are
  int64_t tokens = 0;          // n of every micro-step
  const StepControl& control;  // its loss and leaves are known behind `losses`

  Communicator& comm() const { return runtime.comm(); }  // of all ranks; for collectives of its own
};

// Sees a step between any two of its instructions. Nothing is in flight then: a file transfer has
// ended when `after` is called.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void before(const StepSight& sight, Position at) = 0;
  virtual void after(const StepSight& sight, Position at) = 0;
};

// Runs an executor from where it is up to `end`, instruction by instruction, and shows each that
// takes part. `perform` [nullable] is called behind each, before the observer: what a host does
// there.
void run_observed(Executor& executor, Position end, const StepSight& sight, StepObserver& observer,
                  const std::function<void(Position)>& perform = {});

}  // namespace ds
