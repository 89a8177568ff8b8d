#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/state_store.h"
#include "engine/step_control.h"

namespace ds {

// The set of parameters that a training engine trains, and the number of updates that each has had.
// Both depend on the configuration, on calls between steps, and on a loaded checkpoint.
class TrainedSet {
 public:
  // Collective: compiles the plan for these trained parameters and allocates memory for it.
  using Recompile = std::function<void(const TrainedParams& trained)>;
  TrainedSet(Runtime& runtime, StepControl& control, StateStore& store, Recompile recompile)
      : runtime_(runtime), control_(control), store_(store), recompile_(std::move(recompile)) {}

  // Collective, between steps: freezes these parameters from the next step on, or trains them
  // again. Parameters that have optimizer states keep them. A parameter trained for the first time
  // starts with zero states, and its master is its compute copy. Bias corrections count the updates
  // of each parameter. If a call is refused on one rank, or ranks name different parameters, all
  // ranks throw before anything changes.
  void freeze(std::span<const int32_t> params, int32_t frozen);
  // Collective, between steps: moves these parameters from their present groups to a new group,
  // whose values replace the configuration's from the next step on. Returns the number of the new
  // group.
  int32_t add_group(std::span<const int32_t> params, const Json& values);
  bool is_frozen(ParamId param) const { return store_.zero().trained.frozen.at(param) != 0; }

  // Returns, for checkpoints, the number of updates that each parameter has had in this run. It
  // grows only while the parameter is trained.
  IdVector<ParamId, int64_t> own_updates() const;
  // Collective: freezes exactly the parameters in `frozen`, allocates states for all other
  // parameters and for those in `begun`, and sets the counts that own_updates() returns. The count
  // of a parameter whose states are new is 0.
  void set(const IdVector<ParamId, char>& frozen, const IdVector<ParamId, char>& begun,
           IdVector<ParamId, int64_t> updates);
  // The functions below return the data that this class contributes to a checkpoint.
  std::vector<std::string> frozen_names() const;
  std::vector<std::string> frozen_names_with_states() const;
  // Returns the parameters whose number of updates differs from that of the run, with this number.
  std::vector<std::pair<std::string, int64_t>> late_updates() const;
  // Collective: adopts the frozen parameters of a checkpoint, so that its run continues. Does
  // nothing if the configuration lists other frozen parameters or freeze() was called on this
  // engine.
  void follow(const CheckpointInfo& saved);
  // Returns whether follow() would change anything in an engine that has made no step.
  bool would_change(const CheckpointInfo& saved) const {
    return follows(saved) && (frozen_of(saved) != store_.zero().trained.frozen ||
                              begun_of(saved) != store_.zero().trained.begun);
  }
  // Collective, after a load: sets the counts of updates to the saved ones.
  void take_updates(const CheckpointInfo& saved) {
    set(store_.zero().trained.frozen, store_.zero().trained.begun, updates_of(saved));
  }
  // Returns, as text, the first parameter that is frozen here but not in the checkpoint, or the
  // other way round; "" if both agree.
  std::string difference(const CheckpointInfo& saved) const;

 private:
  // Throws, on all ranks, if a parameter would be trained with a variance of 0.
  void check_variance(const IdVector<ParamId, char>& frozen) const;
  // Collective: throws unless all ranks want the same frozen parameters.
  void compare(const IdVector<ParamId, char>& mine);
  IdVector<ParamId, int64_t> updates_of(const CheckpointInfo& saved) const;
  IdVector<ParamId, char> frozen_of(const CheckpointInfo& saved) const;
  IdVector<ParamId, char> begun_of(const CheckpointInfo& saved) const;
  // Recompiles the plan, then sets initial values of new states and forgets states that no longer
  // fit.
  void recompile(const TrainedParams& next);
  bool follows(const CheckpointInfo& saved) const;

  Runtime& runtime_;
  StepControl& control_;
  StateStore& store_;
  Recompile recompile_;
  // The number of updates of each parameter at the last call of set(). It is still valid for frozen
  // parameters.
  IdVector<ParamId, int64_t> updates_;
  // Whether freeze() was called, so that the configuration no longer says which parameters are
  // frozen.
  bool called_ = false;
};

}  // namespace ds
