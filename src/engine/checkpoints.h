#pragma once
#include <cstdint>
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

// The part of an engine that saves and loads its state and counters, or only its weights. Every
// call except numerics_key is collective.
class Checkpoints {
 public:
  // `trained` [nullable] says which parameters are trained, and is updated by a load. `restart`
  // [nullable] computes the initial states and parameters of the engine again, and `base_loaded`
  // runs after the base of an adapter was loaded; both are collective.
  Checkpoints(Runtime& runtime, StepControl& control, StateStore& store, TrainedSet* trained,
              std::function<void()> restart, std::function<void()> base_loaded)
      : runtime_(runtime),
        control_(control),
        store_(store),
        trained_(trained),
        restart_(std::move(restart)),
        base_loaded_(std::move(base_loaded)) {}
  ~Checkpoints() { hasten(); }

  // Saves a checkpoint and returns its path. This and every other call except numerics_key first
  // waits for a started save, and throws the error of that save.
  std::string save(const std::string& folder, const Json& client = {}, const Keep& keep = {},
                   const std::string& tag = "");
  // Like save(), but a thread writes a copy of the state (checkpoint/writer.h, StartedSave).
  void start_save(const std::string& folder, const Json& client = {}, const Keep& keep = {},
                  const std::string& tag = "");
  // Waits for a started save and returns its path, or "" if none was started since the last wait.
  std::string wait();
  // Attaches a tensor to the next save and replaces an earlier tensor of that name. If a save
  // fails, its attachments are kept for the next one. Not collective: each rank attaches its own.
  void attach(const std::string& name, Attachment attachment);
  // Returns the attachment `name` of `rank` from the checkpoint that load() loaded last. Not
  // collective.
  Attachment attachment(const std::string& name, int32_t rank) const;
  // Loads what find_checkpoint(folder, tag) finds on rank 0. If its content is damaged or cannot be
  // read, loads the newest older checkpoint that is intact, with a warning. A path that names a
  // single checkpoint is loaded or refused, without such a replacement.
  CheckpointInfo load(const std::string& folder, const std::string& tag = "");
  // Loads the weights of a Hugging Face model folder, or of an adapter's folder
  // (checkpoint/weights_load.h); optimizer states and counters stay. With an adapter, later
  // checkpoints name the model folder as their base instead of storing its frozen parameters.
  void load_weights(const std::string& folder);
  // Loads the frozen adapters of adapter.others from their folders.
  void load_other_adapters();
  // Saves a model folder or, with an adapter, the adapter's folder, and below it a folder for each
  // of adapter.others, as PEFT does.
  void save_weights(const std::string& folder, const std::string& like = "");

  // Returns, as text, the properties of model, layout and kernels that the bits of the run depend
  // on.
  std::string numerics_key() const;

 private:
  // Abandons a started save if the engine has failed, because the other ranks do not wait for its
  // part.
  void hasten() {
    if (started_ && runtime_.poisoned()) started_->give_up();
  }
  CheckpointInfo info_of(const Json& client, const std::string& tag);
  StateStore::Writes take_writes();
  bool has_adapter() const;
  bool base_unchanged();
  void provide_base(const std::string& path);
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
  std::function<void()> restart_, base_loaded_;
  // The last checkpoint loaded, if it has a tag. Saves do not delete it.
  std::string loaded_;
  // The path and the hash of the checkpoint that was loaded last, or "".
  std::string source_, source_hash_;
  // The folder that the base of an adapter was loaded from and its hash, as CheckpointInfo::base,
  // or null; and whether a caller has written parameters of the base on this rank since then.
  Json base_;
  bool base_written_ = false;
  // The attachments of the next save, or null.
  std::shared_ptr<Attachments> attached_;
  // The attachments of the started save, or null.
  std::shared_ptr<Attachments> saving_;
  std::unique_ptr<StartedSave> started_;
};

}  // namespace ds
