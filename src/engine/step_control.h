#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/config/config.h"
#include "core/device/scalars.h"

namespace ds {

// What became of one training step, on every rank alike; `reason` is each rank's own.
struct StepResult {
  int64_t step = 0;      // steps made so far, skipped ones included
  int64_t updates = 0;   // optimizer updates taken so far
  double loss = 0;       // mean of the leaf means over all ranks
  double grad_norm = 0;  // before clipping
  double lr = 0;
  bool skipped = false;  // NaN or infinity: nothing was updated
  std::string reason;    // why it was skipped; "" otherwise
};

// What a step begins with and what became of it: learning rate, loss, norm, and whether it was skipped. Its
// scalars are what kernels read; the instructions `losses` and `clip` (kernels/ref/step.cpp) decide clipping
// and skipping. It counts steps and updates apart: the batch of a skipped step is used up, and random numbers
// go on, but learning rate and bias corrections follow the updates.
class StepControl {
 public:
  StepControl(const Config& config, int world);

  const StepScalars& scalars() const { return scalars_; }
  StepScalars& block() { return scalars_; }  // for executors, which write what a step decides
  int64_t steps() const { return scalars_.step; }
  int64_t updates() const { return scalars_.updates; }
  const StepResult& last() const { return last_; }
  double loss() const { return scalars_.loss; }       // of the step, known behind the instruction `losses`
  int64_t leaves() const { return scalars_.leaves; }  // that it is the mean of: those that there are
  bool skips() const { return scalars_.skip != 0; }   // known behind `clip`

  // What a caller changes between steps, from the next one on, by name. "lr": the learning rate, in place of
  // the schedule's; NaN: the schedule again. Throws for another name or a value that the configuration would
  // refuse.
  void set(std::string_view name, double value);
  std::optional<double> set_lr() const { return lr_; }  // what was set last, none: the schedule counts

  // Counters and seed of a run that goes on.
  void resume(int64_t steps, int64_t updates, uint64_t seed);
  // What runs next is a step; or evaluation, which has no dropout.
  void begin_step();
  void begin_evaluation() { scalars_.train = 0; }
  // This rank has no data: its leaves are not there.
  void set_absent(bool absent) { scalars_.absent = absent ? 1 : 0; }
  // A caller has overwritten this parameter's gradient of the step, with NaN or infinity unless `finite`.
  void gradient_written(const std::string& param, bool finite);
  // A parameter to whose gradient NaN or infinity was written; "": none.
  std::string bad_gradient() const { return bad_gradients_.empty() ? "" : *bad_gradients_.begin(); }

  // Behind a step's last instruction: counts it. reason: why a step that skips() does.
  const StepResult& finish(std::string reason = "");

 private:
  const Config& config_;
  StepScalars scalars_;
  std::optional<double> lr_;
  std::set<std::string> bad_gradients_;
  StepResult last_;
};

}  // namespace ds
