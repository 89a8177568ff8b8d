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
#include "core/base/ids.h"
#include "core/config/config.h"
#include "core/config/loss_scaler.h"
#include "core/device/scalars.h"
#include "core/graph/graph.h"
#include "exec/left_out.h"
#include "optim/param_groups.h"

namespace ds {

// The numbers of one group of parameters that a caller has set, by name.
using SetNumbers = std::map<std::string, double>;

// The outcome of one training step. It is the same on all ranks, except that `reason` may differ.
struct StepResult {
  // Number of steps so far, including skipped ones.
  int64_t step = 0;
  // Number of optimizer updates so far.
  int64_t updates = 0;
  // The mean of the losses of the leaves of all ranks, by their weights.
  double loss = 0;
  // The norm of the gradients before clipping.
  double grad_norm = 0;
  double lr = 0;
  // Whether nothing was updated, because of NaN or infinity or because no leaf has a weight.
  bool skipped = false;
  // The reason for the skip, or "".
  std::string reason;
  // The factor by which the loss was multiplied.
  double loss_scale = 1;
  // Whether the step was skipped and the dynamic loss scale cannot fall any further.
  bool at_floor = false;
};

// The numbers that a step starts with, and its outcome: learning rate, loss, norm, and whether it
// was skipped. Kernels read its scalars, and the instructions `losses` and `clip`
// (kernels/ref/step.cpp) decide clipping and skipping. Steps and updates are counted separately: a
// skipped step uses up its batch and its random numbers, but learning rate and bias corrections
// follow the updates.
class StepControl {
 public:
  StepControl(const Config& config, int world);

  const StepScalars& scalars() const { return scalars_; }
  // Returns the scalars for executors, which write the decisions of a step to them.
  StepScalars& block() { return scalars_; }
  int64_t steps() const { return scalars_.step; }
  int64_t updates() const { return scalars_.updates; }
  const StepResult& last() const { return last_; }
  // Returns the loss of the step, which is known after the instruction `losses`.
  double loss() const { return scalars_.loss; }
  // Returns the number of leaves whose mean is the loss. Ranks without data contribute no leaves.
  int64_t leaves() const { return scalars_.leaves; }
  // Returns the total weight of these leaves.
  double weight() const { return scalars_.weight; }
  // Returns whether the step is skipped, which is known after the instruction `clip`.
  bool skips() const { return scalars_.skip != 0; }

  // Returns the numbers that updates read, by group: those of the current step or, between steps,
  // of the next step.
  const std::vector<GroupScalars>& groups() const { return groups_; }
  // Sets a number: "lr" sets the rate of all groups (get() reads group 0), "param_groups[1].lr" the
  // rate of one group. If a group has two rates, "lr" sets both and reads the first; "muon_lr" and
  // "adam_lr" set one of them. From the next step on the value replaces the one of configuration
  // and schedule, until it is set again; NaN returns to configuration and schedule. Throws for an
  // unknown name or a value that the configuration would refuse. Only callers of the library set
  // numbers; the library itself uses scale_rates().
  void set(std::string_view name, double value);
  // Returns a number by its name, or nullopt for an unknown name.
  std::optional<double> get(std::string_view name) const;
  // Multiplies every rate of the next step, also those that a caller has set. The factor does not
  // apply to later steps.
  void scale_rates(double factor);
  // Adds a group, whose values replace the configuration's.
  void add_group(const ParamGroup& values);

  // Returns the numbers that set() has set, by group and name. take_set() replaces them and ignores
  // numbers of groups that do not exist here.
  const std::vector<SetNumbers>& set_numbers() const { return set_; }
  void take_set(const std::vector<SetNumbers>& numbers);

  // Returns the scaler, which has the loss scale of the next step: 1 unless the compute type is
  // f16.
  const LossScaler& scaler() const { return scaler_; }
  // Sets the scaler to that of a continued run, unless the configuration fixes the scale.
  void take_scaler(const LossScaler& scaler);

  // Returns, by group, the sum of the rates of the steps since ranks last agreed
  // (GroupScalars::rate_sum), in f32.
  const std::vector<float>& rate_sums() const { return rate_sums_; }
  void take_rate_sums(int64_t first, std::span<const float> sums);
  void forget_rate_sums();

  // Leaves these parameters out of the update of the current step.
  void leave_out(const IdVector<ParamId, char>& params);
  // Returns which parameters are left out, and how often each was since forget_left_out().
  const LeftOut& left_out() const { return left_out_; }
  void forget_left_out() { left_out_ = {}; }

  // Sets the counters and the seed to those of a continued run.
  void resume(int64_t steps, int64_t updates, uint64_t seed);
  // Declare that the next run is a step, or that it is evaluation, which has no dropout.
  void begin_step();
  void begin_evaluation() { scalars_.train = 0; }
  // Declares whether this rank has no data, and therefore contributes no leaves.
  void set_absent(bool absent) { scalars_.absent = absent ? 1 : 0; }
  // Sets the total weight of the gradients of the step, which in delegate mode comes from the host.
  void set_weight(double weight) { scalars_.weight = weight; }
  // Records that a caller has overwritten this parameter's gradient of the step. Unless `finite`,
  // the new gradient contains NaN or infinity.
  void gradient_written(const std::string& param, bool finite);
  // Returns a parameter to whose gradient NaN or infinity was written, or "".
  std::string bad_gradient() const { return bad_gradients_.empty() ? "" : *bad_gradients_.begin(); }

  // Counts a step after its last instruction. `reason` says why the step was skipped, if skips().
  const StepResult& finish(std::string reason = "");

 private:
  // Computes groups_, the numbers that the next update reads.
  void choose_groups();
  // Stores a value that replaces configuration and schedule; NaN removes it.
  void keep_set(size_t group, const GroupNumber& number, double value);

  const Config& config_;
  StepScalars scalars_;
  // By group, the numbers of the configuration, and these numbers with the schedule, the set
  // numbers and the factor of scale_rates() applied.
  std::vector<GroupScalars> configured_, groups_;
  std::vector<SetNumbers> set_;
  // The factor of scale_rates().
  double rate_factor_ = 1;
  std::vector<float> rate_sums_;
  LeftOut left_out_;
  std::set<std::string> bad_gradients_;
  LossScaler scaler_;
  StepResult last_;
};

}  // namespace ds
