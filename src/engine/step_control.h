#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/group_scalars.h"
#include "core/config/config.h"
#include "core/config/loss_scaler.h"
#include "core/config/param_groups.h"
#include "core/device/scalars.h"

namespace ds {

// Numbers of a group that a caller has set, by name.
using SetNumbers = std::map<std::string, double>;

// What became of one training step, on every rank alike; `reason` is each rank's own.
struct StepResult {
  int64_t step = 0;      // steps made so far, skipped ones included
  int64_t updates = 0;   // optimizer updates taken so far
  double loss = 0;       // mean of the leaf means over all ranks
  double grad_norm = 0;  // before clipping
  double lr = 0;
  bool skipped = false;   // NaN or infinity: nothing was updated
  std::string reason;     // why it was skipped; "" otherwise
  double loss_scale = 1;  // that the loss was multiplied by
  bool at_floor = false;  // skipped, and the dynamic loss scale can fall no further
};

// What a step begins with and what became of it: learning rate, loss, norm, and whether it was
// skipped. Its scalars are what kernels read; the instructions `losses` and `clip`
// (kernels/ref/step.cpp) decide clipping and skipping. It counts steps and updates apart: the batch
// of a skipped step is used up, and random numbers go on, but learning rate and bias corrections
// follow the updates.
class StepControl {
 public:
  StepControl(const Config& config, int world);

  const StepScalars& scalars() const { return scalars_; }
  StepScalars& block() { return scalars_; }  // for executors, which write what a step decides
  int64_t steps() const { return scalars_.step; }
  int64_t updates() const { return scalars_.updates; }
  const StepResult& last() const { return last_; }
  double loss() const {
    return scalars_.loss;
  }  // of the step, known behind the instruction `losses`
  int64_t leaves() const {
    return scalars_.leaves;
  }                                                  // that it is the mean of: those that there are
  double weight() const { return scalars_.weight; }  // of those, all together
  bool skips() const { return scalars_.skip != 0; }  // known behind `clip`

  // Of each group of parameters, what updates read: of the step that runs, between steps of the
  // next one.
  const std::vector<GroupScalars>& groups() const { return groups_; }
  // Numbers of the groups by name: "lr" is that of all groups, read of group 0;
  // "param_groups[1].lr" of one. Where a group has two rates, "lr" sets both and reads the first
  // one; "muon_lr" and "adam_lr" are one each. What is set counts from the next step on, in place
  // of configuration and schedule, until it is set again; NaN gives the number back to them. Throws
  // for a name that there is not or a value that the configuration would refuse. For callers of the
  // library alone: what the library does by itself is in scale_rates().
  void set(std::string_view name, double value);
  std::optional<double> get(std::string_view name) const;  // none: no such name
  // Multiplies every rate of the next step, wherever it comes from. The step behind it has a factor
  // of 1.
  void scale_rates(double factor);
  // A further group, with values in place of the configuration's.
  void add_group(const ParamGroup& values);

  // What was set, by group and name. take_set: in place of it; what is of no group here, is left
  // out.
  const std::vector<SetNumbers>& set_numbers() const { return set_; }
  void take_set(const std::vector<SetNumbers>& numbers);

  // The loss scale of the next step; 1 unless the compute type is f16.
  const LossScaler& scaler() const { return scaler_; }
  // In place of it that of a run that goes on. A scale that the configuration fixes stays.
  void take_scaler(const LossScaler& scaler);

  // Of each group: rates of the steps since ranks last agreed (GroupScalars::rate_sum), in f32.
  const std::vector<float>& rate_sums() const { return rate_sums_; }
  void take_rate_sums(int64_t first, std::span<const float> sums);
  void forget_rate_sums();

  // Counters and seed of a run that goes on.
  void resume(int64_t steps, int64_t updates, uint64_t seed);
  // What runs next is a step; or evaluation, which has no dropout.
  void begin_step();
  void begin_evaluation() { scalars_.train = 0; }
  // This rank has no data: its leaves are not there.
  void set_absent(bool absent) { scalars_.absent = absent ? 1 : 0; }
  // What a host says that the gradients of the step count for, all together.
  void set_weight(double weight) { scalars_.weight = weight; }
  // A caller has overwritten this parameter's gradient of the step, with NaN or infinity unless
  // `finite`.
  void gradient_written(const std::string& param, bool finite);
  // A parameter to whose gradient NaN or infinity was written; "": none.
  std::string bad_gradient() const { return bad_gradients_.empty() ? "" : *bad_gradients_.begin(); }

  // Behind a step's last instruction: counts it. reason: why a step that skips() does.
  const StepResult& finish(std::string reason = "");

 private:
  void choose_groups();  // as the next update reads them
  // In place of configuration and schedule; NaN: back to them.
  void keep_set(size_t group, const GroupNumber& number, double value);

  const Config& config_;
  StepScalars scalars_;
  std::vector<GroupScalars> configured_, groups_;  // groups_: with schedule, and what was set
  std::vector<SetNumbers> set_;
  double rate_factor_ = 1;  // of every rate of the next step
  std::vector<float> rate_sums_;
  std::set<std::string> bad_gradients_;
  LossScaler scaler_;
  StepResult last_;
};

}  // namespace ds
