#include "engine/inference.h"

#include <algorithm>

namespace ds {

InferenceEngine::InferenceEngine(Config config, const Graph& forward, Communicator& comm,
                                 EngineOptions options)
    : runtime_(std::move(config), comm, std::move(options),
               {plan_.zero, plan_.refresh, plan_.hash}),
      control_(runtime_.config(), runtime_.mesh().data_size()),
      store_(runtime_, control_, *this, plan_.zero, StateStore::Keeps::weights),
      checkpoints_(runtime_, control_, store_, nullptr, {}) {
  const EngineOptions& own = runtime_.options();
  runtime_.compile([&] {
    plan_ = compile_inference(forward, runtime_.config(), own.programs.decode, comm.rank(),
                              runtime_.mesh(), own.machine);
  });
  store_.add_params(forward);
  runtime_.start(memory_plan(plan_));
  runtime_.make_executors([&] {
    refresh_ = runtime_.executor(plan_.refresh, control_);
    decoding_ = std::make_unique<Decoding>(plan_.decode, runtime_, control_, store_);
  });
}

std::vector<TierMemory> InferenceEngine::memory() const {
  return memory_by_tier(plan_.zero.buffers, memory_plan(plan_), runtime_.config().memory_budget);
}

}  // namespace ds
