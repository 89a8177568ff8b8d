#include "generation/generation_engine.h"

#include <utility>

#include "compile/decode_plan.h"
#include "nn/adapter_keys.h"
#include "passes/adapters.h"

namespace ds {

GenerationEngine::GenerationEngine(Config config, const Graph& forward, Communicator& comm,
                                   EngineOptions options, int adapter)
    : EngineBody(std::move(config), comm, std::move(options), StateStore::Keeps::weights) {
  const Graph model = add_adapters(forward, this->config().get<AdapterKeys>(), adapter);
  compile([&](size_t) {
    return compile_generation(model, this->config(), runtime_.options().programs.decode,
                              comm.rank(), runtime_.mesh(), machine());
  });
  // The program `init` does not run, because parameters come from load() or load_weights().
  store_.add_params(model);
  take_memory();
  make_executors();
}

}  // namespace ds
