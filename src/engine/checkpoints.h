#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "engine/trained_set.h"

namespace ds {

// Saves and loads what an engine holds: checkpoints of its state and counters, and weights alone.
// Every call but numerics_key is collective.
class Checkpoints {
 public:
  // trained [nullable]: which parameters are trained, and which are to be after a load. restart
  // [nullable]: makes the states again that the engine began with, and its parameters; collective.
  Checkpoints(Runtime& runtime, StepControl& control, StateStore& store, TrainedSet* trained,
              std::function<void()> restart)
      : runtime_(runtime),
        control_(control),
        store_(store),
        trained_(trained),
        restart_(std::move(restart)) {}
  ~Checkpoints() { hasten(); }

  // Returns the path of what it made. Each call but numerics_key first waits for a save that was
  // started, and throws what it has thrown.
  std::string save(const std::string& folder, const Json& client = {}, const Keep& keep = {},
                   const std::string& tag = "");
  // The same, but a thread writes a copy of the state (checkpoint/writer.h, StartedSave).
  void start_save(const std::string& folder, const Json& client = {}, const Keep& keep = {},
                  const std::string& tag = "");
  // The path of the save that was started, or "" if there was none since the last wait.
  std::string wait();
  // Loads what find_checkpoint(folder, tag) finds on rank 0, or, where the content of that one is
  // damaged, the newest older one, with a warning. A checkpoint that is named itself is loaded or
  // refused.
  CheckpointInfo load(const std::string& folder, const std::string& tag = "");
  // Weights of a Hugging Face model folder (checkpoint/weights_load.h); optimizer states and
  // counters stay.
  void load_weights(const std::string& folder);
  void save_weights(const std::string& folder, const std::string& like = "");

  // What the bits of the run depend on.
  std::string numerics_key() const;

 private:
  // Nobody waits for the part of a rank that has ended.
  void hasten() {
    if (started_ && runtime_.poisoned()) started_->give_up();
  }
  CheckpointInfo info_of(const Json& client, const std::string& tag) const;
  Keep kept(const Keep& keep) const;
  void overwrite(const std::function<void()>& body);
  CheckpointInfo load_one(const std::string& path);
  bool restorable(const CheckpointInfo& saved) const;
  void restore();
  void tell_differences(const std::string& path, const CheckpointInfo& saved);

  Runtime& runtime_;
  StepControl& control_;
  StateStore& store_;
  TrainedSet* trained_;
  std::function<void()> restart_;
  std::string loaded_;  // the last one, if it has a tag: saves leave it
  std::unique_ptr<StartedSave> started_;
};

}  // namespace ds
