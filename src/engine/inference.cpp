#include "engine/inference.h"

#include "checkpoint/agree.h"

namespace ds {

InferenceEngine::InferenceEngine(Config config, const Graph& forward, Communicator& comm,
                                 EngineOptions options)
    : EngineCore(std::move(config), comm, std::move(options), Keeps::weights) {
  agree(comm_, "compile", [&] {
    overhead_.measure("programs", [&] {
      plan_ = compile_inference(forward, config_, options_.programs.decode, comm_.rank(), comm_.size(),
                                options_.machine);
    });
  });
  add_params(forward);
  start(memory_plan(plan_));
  make_executors([&] {
    refresh_ = executor(plan_.refresh);
    decoding_ = make_decoding(plan_.decode);
  });
}

std::string InferenceEngine::report_plan() const {
  return memory_table(plan_.zero.buffers, memory_plan(plan_), config_.memory_budget) + overhead().table();
}

}  // namespace ds
