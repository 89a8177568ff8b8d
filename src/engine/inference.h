#pragma once
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "compile/decode_plan.h"
#include "compile/memory_plan.h"
#include "engine/checkpoints.h"
#include "engine/decoding.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "exec/executor.h"

namespace ds {

// Continues text and nothing else: parameters in the compute type and caches, no state of training.
// Weights come from load_weights, or from load, which takes the masters of any checkpoint.
class InferenceEngine final : private StateStore::Owner {
 public:
  // Collective, as of Engine. options.programs.decode says how long a text can be. comm is
  // borrowed.
  InferenceEngine(Config config, const Graph& forward, Communicator& comm, EngineOptions options);

  CheckpointInfo load(const std::string& folder) { return checkpoints_.load(folder); }
  void load_weights(const std::string& folder) { checkpoints_.load_weights(folder); }
  Decoding& text() { return *decoding_; }

  const InferencePlan& plan() const { return plan_; }
  const Runtime& runtime() const { return runtime_; }
  StateStore& store() { return store_; }
  std::vector<TierMemory> memory() const;

 private:
  Gradients gradients() const override { return Gradients::none; }
  void require_idle(const char*) override {}
  Executor& refresh() override { return *refresh_; }
  std::string model_text() const override { return plan_.decode.graph.print(); }

  InferencePlan plan_;
  Runtime runtime_;
  StepControl control_;
  StateStore store_;
  Checkpoints checkpoints_;
  std::unique_ptr<Executor> refresh_;
  std::unique_ptr<Decoding> decoding_;
};

}  // namespace ds
