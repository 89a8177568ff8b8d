#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/device/scalars.h"
#include "core/program/program.h"
#include "kernels/kernel.h"

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

// Decides what a step does: learning rate, loss and norm over all leaves, clipping, and whether the update
// takes place. Its scalars are what kernels read. It counts steps and updates apart: the batch of a skipped
// step is used up, and random numbers go on, but learning rate and bias corrections follow the updates.
class StepControl {
 public:
  StepControl(const Config& config, int world);

  const StepScalars& scalars() const { return scalars_; }
  int64_t steps() const { return scalars_.step; }
  int64_t updates() const { return scalars_.updates; }
  const StepResult& last() const { return last_; }
  double loss() const { return loss_; }              // of the step, known behind the instruction `losses`
  int64_t leaves() const { return leaves_; }         // that it is the mean of: those that there are
  bool skips() const { return scalars_.skip != 0; }  // known behind `clip`

  // In which order the norm adds the granules' partial sums: zero/update's norm_order().
  void set_norm_order(std::vector<int64_t> order) { norm_order_ = std::move(order); }
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

  // The two instructions that decide a step, `losses` and `clip`.
  static bool performs(const Instr& instr);
  void perform(const Instr& instr, std::span<const TensorView> views);

  // Behind a step's last instruction: counts it. reason: why a step that skips() does.
  const StepResult& finish(std::string reason = "");

 private:
  void add_losses(const TensorView& losses);
  void clip(const Instr& instr, const TensorView& norms);

  const Config& config_;
  const int64_t world_;
  StepScalars scalars_;
  double loss_ = 0;
  int64_t leaves_;
  std::vector<int64_t> norm_order_;
  std::set<std::string> bad_gradients_;
  StepResult last_;
};

}  // namespace ds
