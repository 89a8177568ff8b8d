#pragma once
#include "compile/decode.h"
#include "engine/core.h"

namespace ds {

// Continues text and nothing else: parameters in the compute type and caches, no state of training. Weights
// come from load_weights, or from load, which takes the masters of any checkpoint.
class InferenceEngine final : public EngineCore {
 public:
  // Collective, as of Engine. options.programs.decode says how long a text can be. comm is borrowed.
  InferenceEngine(Config config, const Graph& forward, Communicator& comm, EngineOptions options);

  const InferencePlan& plan() const { return plan_; }
  std::string print_plan() const override { return plan_.decode.program.print(); }
  std::string report_plan() const override;

 protected:
  const ZeroPlan& zero() const override { return plan_.zero; }
  const Program& placed() const override { return plan_.refresh; }
  const std::string& plan_hash() const override { return plan_.hash; }
  std::string model_text() const override { return plan_.decode.graph.print(); }
  Executor& refresh() override { return *refresh_; }
  Decoding* decoding() override { return decoding_.get(); }
  void recompile(const IdVector<ParamId, char>&, const IdVector<ParamId, int64_t>&) override {
  }  // freeze refuses it
  bool before_update() const override { return false; }
  void require_idle(const char*) override {}
  bool in_accumulation() const override { return false; }

 private:
  InferencePlan plan_;
  std::unique_ptr<Executor> refresh_;
  std::unique_ptr<Decoding> decoding_;
};

}  // namespace ds
