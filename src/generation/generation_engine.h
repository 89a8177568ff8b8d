#pragma once
#include <string>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "engine/body.h"
#include "engine/options.h"
#include "zero/zero_plan.h"

namespace ds {

// An engine that only continues text: it has parameters in the compute type and caches, but no
// training state. Weights come from load_weights(), or from load(), which reads the masters of any
// checkpoint.
class GenerationEngine final : public EngineBody {
 public:
  // Collective, like the constructor of Engine. options.programs.decode has the length of the
  // longest text. `adapter` is the number of the adapter that continues texts (nn/adapter_keys.h).
  // `comm` is borrowed.
  GenerationEngine(Config config, const Graph& forward, Communicator& comm, EngineOptions options,
                   int adapter = 0);

  CheckpointInfo load(const std::string& folder) { return checkpoints_.load(folder); }
  void load_weights(const std::string& folder) { checkpoints_.load_weights(folder); }

 private:
  Gradients gradients() const override { return Gradients::none; }
  void require_idle(const char*) override {}
  std::string model_text() const override { return plan_.decode->graph.print(); }
  // Never called, as no parameter is trained.
  void recompile(const TrainedParams&) override {}
};

}  // namespace ds
