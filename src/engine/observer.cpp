#include "engine/observer.h"

namespace ds {

void run_observed(Executor& executor, Position end, const StepSight& sight, StepObserver& observer,
                  const std::function<void(Position)>& perform) {
  const Program& program = executor.program();
  sight.runtime.settle();
  // The loop waits after each instruction, so that nothing is in flight when the observer is
  // called. The results are the same as those of an ordinary run.
  for (Position at = executor.position(); program.before(at, end);) {
    Position next = program.next(at);
    bool sees = program.takes_part(at);
    if (sees) observer.before(sight, at);
    executor.run_to(next);
    executor.settle();
    if (perform) perform(at);
    if (sees) observer.after(sight, at);
    at = next;
  }
}

}  // namespace ds
