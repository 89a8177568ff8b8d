#pragma once
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "engine/engine.h"
#include "nn/adapter_keys.h"
#include "support/hf_golden.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/semantics.h"

namespace ds::test {

// The names of the adapters that tests/interop/adapters.py recorded from PEFT. They begin with the
// name of their model folder, which may end with "-".
inline const std::vector<std::string>& peft_cases() {
  static const auto& names = *new std::vector<std::string>{
      "gpt2",       "llama",     "qwen3",         "phi3",
      "mixtral",    "gpt_neox",  "bert",          "gemma2",
      "qwen2",      "mistral",   "opt",           "gpt_neox-head",
      "llama-dora", "gpt2-dora", "llama-dropout", "gpt2-dora-dropout"};
  return names;
}

// A batch of the model's recorded input, in the form that an engine accepts.
struct PeftBatch {
  PeftBatch(const HfGolden& golden, const HfModel& model) {
    for (ValueId id : model.graph.inputs)
      tensors.push_back(golden.input(model, model.graph.values[id].name));
    for (Tensor& t : tensors) views.push_back({t.bytes().data(), DS_DTYPE_I32, t.numel()});
  }
  std::vector<Tensor> tensors;
  std::vector<InputView> views;
};

// A recorded adapter with its model.
struct PeftCase {
  explicit PeftCase(const std::string& name)
      : base(golden_path(name.substr(0, name.find('-')))),
        folder(data_path("adapters/" + name)),
        golden(base),
        model(golden.build()),
        batch(golden, model) {}

  // Returns the configuration of the recorded steps: AdamW in f32, and the adapter.
  Config config(int stage, int world) const {
    Config config = make_config(stage, 1, world);
    config.compute = DS_DTYPE_F32;
    config.gradient_clipping = 1;
    config.optimizer.lr = 1e-3;
    config.optimizer.beta1 = 0.9;
    config.optimizer.beta2 = 0.95;
    config.optimizer.eps = 1e-8;
    config.optimizer.weight_decay = 0.1;
    config.zero.param_persistence_threshold = 100;
    // The seed of the recorded masks.
    config.seed = 1234;
    config.get<AdapterKeys>() = read_adapter_config(folder);
    return config;
  }

  std::string base, folder;
  HfGolden golden;
  HfModel model;
  PeftBatch batch;
};

// Returns the keys of a section `adapter`.
inline AdapterKeys keys_of(const std::string& section) {
  return parse_config(Json::parse(R"({"train_batch_size": 1, "adapter": )" + section + "}"), 1)
      .get<AdapterKeys>();
}

// Engines of a recorded adapter's model, for fixtures.
class PeftEngines {
 protected:
  explicit PeftEngines(const std::string& name) : case_(name) {}

  // Runs body with an engine on every rank and returns the hash of the states.
  std::string run(const Config& config, int world, const std::function<void(Engine&)>& body) {
    std::string hash;
    run_ranks(world, [&](Communicator& comm) {
      Engine engine(config, case_.model.graph, comm, {});
      body(engine);
      const std::string mine = hash_of_states(engine);
      if (comm.rank() == 0) hash = mine;
    });
    return hash;
  }
  void load(Engine& engine) {
    engine.checkpoints().load_weights(case_.base);
    engine.checkpoints().load_weights(case_.folder);
  }
  void train(Engine& engine, int steps) {
    for (int i = 0; i < steps; ++i) engine.train_batch(case_.batch.views);
  }

  PeftCase case_;
};

}  // namespace ds::test
