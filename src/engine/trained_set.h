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

// Which parameters of a training engine are trained, and how many updates each has had: by the
// configuration, by calls between steps, and as a checkpoint says.
class TrainedSet {
 public:
  // Compiles anew with parameters trained so, and takes memory for it. Collective.
  using Recompile = std::function<void(const TrainedParams& trained)>;
  TrainedSet(Runtime& runtime, StepControl& control, StateStore& store, Recompile recompile)
      : runtime_(runtime), control_(control), store_(store), recompile_(std::move(recompile)) {}

  // Collective, between steps: these parameters are trained from the next step on, or no more.
  // Parameters that have optimizer states keep them. One that is trained for the first time starts
  // with zero states, and its master is its compute copy. Bias corrections count a parameter's own
  // updates. What a rank is refused, and parameters that differ between ranks, are an error on all
  // before anything changes.
  void freeze(std::span<const int32_t> params, int32_t frozen);
  // Collective, between steps: from the next step on updates of these parameters, whatever group
  // they were in, have these values in place of the configuration's. Returns the number of the new
  // group.
  int32_t add_group(std::span<const int32_t> params, const Json& values);
  bool is_frozen(ParamId param) const { return store_.zero().trained.frozen.at(param) != 0; }

  // For checkpoints. Updates that each parameter has had in this run: only those of trained
  // parameters grow.
  IdVector<ParamId, int64_t> own_updates() const;
  // Frozen or not, of those of `begun` with states, too, and with updates as own_updates() is to
  // say; what begins now has had none. Collective.
  void set(const IdVector<ParamId, char>& frozen, const IdVector<ParamId, char>& begun,
           IdVector<ParamId, int64_t> updates);
  // What a checkpoint holds of this.
  std::vector<std::string> frozen_names() const;
  std::vector<std::string> frozen_names_with_states() const;
  std::vector<std::pair<std::string, int64_t>> late_updates() const;  // other than the run's
  // Freezes and thaws as calls had done before the checkpoint was saved, so that the run goes on;
  // nothing when calls or the configuration say otherwise here. Collective.
  void follow(const CheckpointInfo& saved);
  // Whether follow() would change anything in an engine that has made no step.
  bool would_change(const CheckpointInfo& saved) const {
    return follows(saved) && (frozen_of(saved) != store_.zero().trained.frozen ||
                              begun_of(saved) != store_.zero().trained.begun);
  }
  // Behind a load: the saved counts. Collective.
  void take_updates(const CheckpointInfo& saved) {
    set(store_.zero().trained.frozen, store_.zero().trained.begun, updates_of(saved));
  }
  // The first parameter that is frozen either here or in the checkpoint; "" without one.
  std::string difference(const CheckpointInfo& saved) const;

 private:
  // Throws for a parameter that would be trained with a variance of 0. On all ranks alike.
  void check_variance(const IdVector<ParamId, char>& frozen) const;
  void compare(const IdVector<ParamId, char>& mine);  // with the other ranks' wishes. Collective
  IdVector<ParamId, int64_t> updates_of(const CheckpointInfo& saved) const;
  IdVector<ParamId, char> frozen_of(const CheckpointInfo& saved) const;
  IdVector<ParamId, char> begun_of(const CheckpointInfo& saved) const;
  void recompile(
      const TrainedParams& next);  // and what follows from it: states that begin, own momenta
  bool follows(const CheckpointInfo& saved) const;

  Runtime& runtime_;
  StepControl& control_;
  StateStore& store_;
  Recompile recompile_;
  IdVector<ParamId, int64_t> updates_;  // own updates, as of the last time that one was set apart
  bool called_ = false;                 // freeze() has changed what the configuration says
};

}  // namespace ds
